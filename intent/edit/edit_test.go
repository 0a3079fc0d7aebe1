package edit

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const shop = `# what we sell
apiVersion: converge/v1
kind: Application
name: shop
---
apiVersion: converge/v1
kind: Service   # the shop itself
name: web
parameters:
- {name: greeting, type: string, default: hello}   # said to everybody
- name: replicas
  type: int
  default: 3    # for now
custom:
    env: {GREETING: 'it''s "on"', "odd.key": "a\"b", É: x, N: "3"}
    text: |
      block
    shared: &shared same
    again: *shared
    long: a plain
      one
`

// One value becomes another, and no other byte.
func TestSetChangesOneValue_D28(t *testing.T) {
	fsys := fstest.MapFS{"deploy/converge.yaml": {Data: []byte(shop)}, "a.converge.yaml": {Data: []byte("kind: Service\nname: other\n")}}
	for _, row := range []struct{ path, value, old, written string }{
		{"Service/web.parameters[name=greeting].default", "hi", "default: hello}", "default: hi}"},
		{"Service/web.parameters[name=greeting].default", "hi, you", "default: hello}", `default: "hi, you"}`},
		{"Service/web.parameters[0].default", "true", "default: hello}", `default: "true"}`},
		{"Service/web.parameters[0].default", "a #b: c\n", "default: hello}", `default: "a #b: c\n"}`},
		{"Service/web.parameters[name=replicas].default", "12", "default: 3 ", "default: 12 "},
		{"Service/web.custom.env.GREETING", "it's off", `'it''s "on"'`, `'it''s off'`},
		{"Service/web.custom.env.GREETING", "a\tb\x01", `'it''s "on"'`, `"a\tb\u0001"`},
		{`Service/web.custom.env["odd.key"]`, `<"c">`, `"a\"b"`, `"<\"c\">"`},
		{"Service/web.custom.env.É", "y", "É: x", "É: y"},
		{"Service/web.custom.env.N", "4", `N: "3"`, `N: "4"`},
		{"Service/web.name", "site", "name: web", "name: site"},
		{"Application/shop.name", "store", "name: shop", "name: store"},
	} {
		got, err := Set(fsys, row.path, row.value)
		require.NoError(t, err, row.path)
		require.Equal(t, "deploy/converge.yaml", got.File)
		require.Equal(t, row.value, got.After)
		require.Contains(t, shop, row.old)
		require.Equal(t, replaced(shop, row.old, row.written), string(got.Text), row.path)
	}
	got, err := Set(fsys, "Service/web.parameters[1].default", "3")
	require.NoError(t, err)
	require.Equal(t, Change{File: "deploy/converge.yaml", Before: "3", After: "3", Text: []byte(shop)}, got, "unchanged value")
}

func replaced(text, old, by string) string {
	for i := 0; ; i++ {
		if text[i:i+len(old)] == old {
			return text[:i] + by + text[i+len(old):]
		}
	}
}

func TestSetRejectsInvalidPaths_D28(t *testing.T) {
	fsys := fstest.MapFS{"converge.yaml": {Data: []byte(shop)}}
	for path, want := range map[string]string{
		"web.name":                         "invalid path",
		"Service/web":                      "invalid path",
		"Service/web.":                     "invalid path",
		"Service/web.a[x]":                 "invalid path",
		"Service/web.a[0":                  "invalid path",
		"Service/gone.name":                "there is no Service/gone",
		"Service/web.custom.none":          "there is no custom.none",
		"Service/web.parameters[7].name":   "there is no parameters[7]",
		"Service/web.parameters[name=x].a": "there is no parameters[name=x]",
		"Service/web.custom.env":           "it is a list or a mapping",
		"Service/web.custom.text":          "its form cannot be changed automatically",
		"Service/web.custom.long":          "its form cannot be changed automatically",
		"Service/web.custom.shared":        "it is used in several places",
		"Service/web.custom.again":         "it is used in several places",
	} {
		_, err := Set(fsys, path, "x")
		require.ErrorContains(t, err, want, path)
	}
	_, err := Set(fsys, "Service/web.parameters[1].default", "3 # more")
	require.ErrorIs(t, err, errLayout)
	_, err = Set(fstest.MapFS{"converge.yaml": {Data: []byte("a: [")}}, "Service/web.name", "x")
	require.ErrorContains(t, err, "converge.yaml: yaml:")
}
