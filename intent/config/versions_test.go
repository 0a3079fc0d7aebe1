package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The last version is the one that is written, and each before it is converted to the next.
func TestFormatVersionsConvertToTheCurrentOne(t *testing.T) {
	all := formatVersions()
	for n, v := range all {
		require.Equal(t, n+1 == len(all), v.next == nil, v.name)
		require.Greater(t, numberOf(v.name), 0, v.name)
	}
	require.Equal(t, APIVersion, all[len(all)-1].name)
}

// renamed gives a field of a kind another name.
func renamed(kind, from, to string) func(string, *yaml.Node) {
	return func(of string, document *yaml.Node) {
		for i := 0; of == kind && i+1 < len(document.Content); i += 2 {
			if document.Content[i].Value == from {
				document.Content[i].Value = to
			}
		}
	}
}

// Documents of earlier versions, made up here, are read as what they are converted to, one version after another; and what is wrong
// with them is said where it stands. Two versions of the format may stand in one file.
func TestEarlierVersionsAreConverted_D4(t *testing.T) {
	read := func(text string, others ...formatVersion) (*Config, Problems) {
		l := &Reader{kinds: kinds, Config: &Config{}, others: others}
		l.text("converge.yaml", []byte(text))
		return l.Config, l.Problems()
	}
	earlier := []formatVersion{
		{"converge/v0alpha", renamed("Service", "about", "text")}, {"converge/v0beta", renamed("Service", "text", "description")}, {name: APIVersion},
	}
	now, problems := read("# a line\n{apiVersion: converge/v1, kind: Service, name: web, description: hello}\n---\n{apiVersion: converge/v1, kind: Runtime, name: about, labels: {about: x}}\n")
	require.Empty(t, problems)
	before, problems := read("# a line\n{apiVersion: converge/v0alpha, kind: Service, name: web, about: hello}\n---\n{apiVersion: converge/v0beta, kind: Runtime, name: about, labels: {about: x}}\n", earlier...)
	require.Empty(t, problems)
	require.Equal(t, now.Services[0].Spec, before.Services[0].Spec)
	require.Equal(t, now.Runtimes[0].Spec, before.Runtimes[0].Spec)

	_, problems = read("apiVersion: converge/v0beta\nkind: Service\nname: web\n\ntext: 7\nabout: hello\n", earlier...)
	require.Len(t, problems, 2)
	require.Equal(t, `converge.yaml:5:7: description: this is the number 7; expected text (put it in quotes: "7") [wrong-type]`, problems[0].String())
	require.Contains(t, problems[1].String(), `converge.yaml:6:1: about: unknown field "about"; `, "that is a field of another version")
	_, problems = read("apiVersion: converge/v2\nkind: Service\nname: web\n", earlier...)
	require.EqualError(t, problems, `converge.yaml:1:13: apiVersion: "converge/v2" needs a newer converge; expected one of converge/v0alpha, converge/v0beta, converge/v1, or a newer converge [newer-version]`)
	_, problems = read("apiVersion: converge/v0beta\nkind: Service\nname: web\n")
	require.EqualError(t, problems, `converge.yaml:1:13: apiVersion: there is no version "converge/v0beta" of this format; expected converge/v1 [unknown-version]`)
}
