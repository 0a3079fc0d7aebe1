package compile

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
)

const installationHead = "apiVersion: converge/v1\nkind: Installation\n"

func TestRulesOfAnInstallation_F4(t *testing.T) {
	files := fstest.MapFS{"rules.yaml": &fstest.MapFile{Data: []byte(installationHead + `board: https://converge.shop.dev
identity: {issuer: https://id.shop.dev, audience: converge, required: [configure]}
authorization:
- {verbs: [pause, resume], to: ["group:sre"]}
- {verbs: "*", runtimes: [eu, us], to: [alice@shop.dev]}
`)}}
	rules, err := Rules(files, "rules.yaml")
	require.NoError(t, err)
	require.Equal(t, entities.Rules{
		Board:    "https://converge.shop.dev",
		Identity: &entities.Identity{Issuer: "https://id.shop.dev", Audience: "converge", Required: []string{"configure"}},
		Grants: []entities.Grant{
			{Verbs: []string{"pause", "resume"}, To: []string{"group:sre"}},
			{Verbs: []string{"*"}, Channels: []string{"runtime/eu", "runtime/us"}, To: []string{"alice@shop.dev"}},
		},
	}, rules)
}

func TestMalformedRules_F4(t *testing.T) {
	for text, want := range map[string]string{
		"": "rules.yaml:1:1: this is not one document of kind Installation; expected nothing else in this file [one-document]",
		installationHead + "---\n" + installationHead:                                         "rules.yaml:1:1: this is not one document of kind Installation; expected nothing else in this file [one-document]",
		"apiVersion: converge/v1\nkind: Application\nname: shop\n":                            `rules.yaml:2:7: kind: there is no kind "Application"; expected Installation [unknown-kind]`,
		installationHead + "authorization:\n- {verbs: [approve], to: [alice]}\n":              `rules.yaml:4:12: authorization[0].verbs[0]: "approve" is not possible here; expected one of pause, resume, drain, restore, release, grant, configure, publish, publish-library, read [bad-value]`,
		installationHead + "authorization:\n- {verbs: [read], runtimes: [eu], to: [alice]}\n": `rules.yaml:4:11: authorization[0].verbs: "read" is for the whole installation; expected a grant of its own without runtimes, applications and libraries [bad-value]`,
		installationHead + "authorization:\n- {verbs: [pause], runtimes: [], to: []}\n": `rules.yaml:4:30: authorization[0].runtimes: the list is empty; expected at least one; omit the field for everything [missing-field]
rules.yaml:4:38: authorization[0].to: the list is empty; expected names of people, or of groups as group:NAME [missing-field]`,
		installationHead + "board: https://shop.dev/board\n":            `rules.yaml:3:8: board: invalid address "https://shop.dev/board"; expected https://HOST [bad-value]`,
		installationHead + "identity: {issuer: nowhere, audience: x}\n": `rules.yaml:3:20: identity.issuer: invalid address "nowhere"; expected one that begins with http:// or https:// [bad-value]`,
	} {
		_, err := Rules(fstest.MapFS{"rules.yaml": &fstest.MapFile{Data: []byte(text)}}, "rules.yaml")
		require.EqualError(t, err, want)
	}
}

// The rules of everything come by no application.
func TestInstallationInAnApplicationIsRejected_F4(t *testing.T) {
	const application = "---\napiVersion: converge/v1\nkind: Application\nname: shop\nreleaseChannels: [{name: prod, runtimes: [{name: r}]}]\n"
	_, problems := LoadFS(fstest.MapFS{"converge.yaml": &fstest.MapFile{Data: []byte(installationHead + application)}}, "shop", config.Options{})
	require.ErrorContains(t, problems, "converge.yaml:2:7: kind: an Installation cannot be part of an application; expected a separate file in another directory; set it with: converge admin rules FILE [misplaced]")
}
