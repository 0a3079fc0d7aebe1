package sops_test

import (
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/intent/sops"
)

// workerKeys are those of a worker that has these identities.
func workerKeys(t require.TestingT, identities ...*age.X25519Identity) *sops.Keys {
	text := ""
	for _, i := range identities {
		text += i.String() + "\n"
	}
	keys, err := sops.Load(nil, func(name string) string { return map[string]string{sops.KeyVariable: text}[name] })
	require.NoError(t, err)
	return keys
}

// Whatever is sealed is there again for each of those whom it was sealed for, and for nobody else.
func TestSeal_E2_G5(t *testing.T) {
	t.Parallel()
	var all [3]*age.X25519Identity
	for n := range all {
		var err error
		all[n], err = age.GenerateX25519Identity()
		require.NoError(t, err)
	}
	recipients := []string{all[0].Recipient().String(), all[1].Recipient().String()}
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.MapOfN(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,5}`), rapid.String(), 1, 5).Draw(t, "texts")
		sealed, err := sops.Seal("prowlarr", texts, recipients, time.Now())
		require.NoError(t, err)
		for _, value := range texts {
			if len(value) > 8 {
				require.NotContains(t, string(sealed), value)
			}
		}
		for _, id := range all[:2] {
			plain, err := workerKeys(t, id).Texts("home", sealed)
			require.NoError(t, err)
			require.Equal(t, texts, plain)
		}
		_, err = workerKeys(t, all[2]).Texts("home", sealed)
		require.ErrorIs(t, err, sops.ErrNoKey)
	})
	_, err := sops.Seal("prowlarr", map[string]string{"apiKey": "x"}, nil, time.Now())
	require.ErrorContains(t, err, "no recipients")
	require.NoError(t, sops.CheckRecipient(recipients[0]))
	for _, wrong := range []string{"", "age1nothing", all[0].String(), recipients[0] + "\n" + recipients[1]} {
		require.Error(t, sops.CheckRecipient(wrong))
	}
}
