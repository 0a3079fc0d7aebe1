package codec_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/intent/codec"
)

// named puts a new key into the environment, and returns the reference to it.
func named(t *testing.T, name string) string {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	t.Setenv(name, base64.StdEncoding.EncodeToString(key))
	return "env:" + name
}

func load(t *testing.T, encrypt string, keys ...string) *codec.Codec {
	t.Helper()
	c, err := codec.Load(strings.Join(keys, ","), encrypt)
	require.NoError(t, err)
	return c
}

// encrypted is what somebody with a codec sends.
func encrypted(t *testing.T, c *codec.Codec, what any) *commonpb.Payloads {
	t.Helper()
	data, _ := c.Converters()
	payloads, err := data.ToPayloads(what)
	require.NoError(t, err)
	return payloads
}

// Both keys of a change read what either of them encrypted, and what nobody has; the newest encrypts.
func TestKeysAreRotated_G5(t *testing.T) {
	old, next := named(t, "OLD"), named(t, "NEXT")
	for name, row := range map[string]struct {
		from, to *codec.Codec
	}{
		"in plain":           {&codec.Codec{}, load(t, "true", old)},
		"with the old one":   {load(t, "true", old), load(t, "true", next, old)},
		"before it is first": {load(t, "true", old, next), load(t, "true", old)},
		"with the new one":   {load(t, "true", next, old), load(t, "", next)},
	} {
		var out string
		require.NoError(t, row.to.Read(encrypted(t, row.from, "canary"), &out), name)
		require.Equal(t, "canary", out, name)
	}
	p := encrypted(t, load(t, "true", next, old), "canary").GetPayloads()[0]
	require.Equal(t, load(t, "true", next).Encrypts(), string(p.GetMetadata()[codec.KeyID]))
	require.Equal(t, codec.Encoding, string(p.GetMetadata()[converter.MetadataEncoding]))
	require.NotContains(t, p.String(), "canary")
	require.NotEqual(t, p.GetData(), encrypted(t, load(t, "true", next, old), "canary").GetPayloads()[0].GetData(), "equal payloads have different cipher texts")
}

// While a workflow decides, a key that the installation uses and the worker lacks fails the task, with words; an error would
// end the workflow or lose the message. What names a key that nobody ever used, or is broken, is a text that is refused.
func TestMissingKeyFailsTheTaskAndForgeryDoesNot_G5(t *testing.T) {
	key, own := named(t, "USED"), named(t, "OWN")
	message := encrypted(t, load(t, "true", key), map[string]string{"by": "alice"})
	c := load(t, "true", own)
	c.SetKnown(map[string]bool{load(t, "true", key).Encrypts(): true})
	data, _ := c.Converters()
	deciding := data.(converter.ContextAware).WithWorkflowContext(nil)
	var raw json.RawMessage
	require.PanicsWithError(t, `a payload cannot be read: it is encrypted, and this process does not have the key; set CONVERGE_STORE_KEY (its id is "`+load(t, "true", key).Encrypts()+`")`,
		func() { _ = deciding.FromPayloads(message, &raw) })
	require.True(t, codec.IsNoKey(c.Read(message, &raw)))
	require.True(t, codec.IsNoKey((&codec.Codec{}).Read(message, &raw)), "without known keys every key counts as missing")

	c.SetKnown(nil)
	require.NoError(t, deciding.FromPayloads(message, &raw))
	require.Contains(t, string(raw), `"a payload cannot be read: it is encrypted`)
	require.False(t, codec.IsNoKey(c.Read(message, &raw)), "no worker waits for it")
	broken := encrypted(t, c, "canary")
	broken.Payloads[0].Data[len(broken.Payloads[0].GetData())-1]++
	require.NoError(t, deciding.FromPayloads(broken, &raw))
	require.Contains(t, string(raw), "not the content that was encrypted")
	var result struct{}
	require.Error(t, deciding.FromPayloads(broken, &result), "text that is not a message is an error")
	require.Error(t, deciding.FromPayload(broken.GetPayloads()[0], &result))
	for _, data := range []string{"", "converge-sealed/v1 ", "converge-sealed/v1 x\n", "x"} {
		p := &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(codec.Encoding)}, Data: []byte(data)}}}
		require.NotPanics(t, func() { require.NoError(t, deciding.FromPayloads(p, &raw)) })
	}
}

// A failure's message is encrypted with the rest, and said in words to who has no key.
func TestFailuresAreEncrypted_G5(t *testing.T) {
	key := named(t, "KEY")
	_, failures := load(t, "true", key).Converters()
	f := failures.ErrorToFailure(errorText("canary"))
	require.NotContains(t, f.String(), "canary")
	_, without := (&codec.Codec{}).Converters()
	require.Contains(t, codec.Refusal(f.GetMessage()), "set CONVERGE_STORE_KEY to the key")
	require.NotContains(t, without.FailureToError(f).Error(), "canary")
	require.Contains(t, failures.FailureToError(f).Error(), "canary")
	require.Equal(t, "as it is", codec.Refusal("as it is"))
}

type errorText string

func (e errorText) Error() string { return string(e) }

func TestEncryptionRequiresAKey(t *testing.T) {
	_, err := codec.Load("", "true")
	require.EqualError(t, err, "payloads must be encrypted, and there is no key; set CONVERGE_STORE_KEY")
	_, err = codec.Load("", "perhaps")
	require.EqualError(t, err, `CONVERGE_ENCRYPT_PAYLOADS is "perhaps"; expected true or false`)
	c, err := codec.Load("", "false")
	require.NoError(t, err)
	require.Empty(t, c.Encrypts())
	require.False(t, c.Keyed())
}
