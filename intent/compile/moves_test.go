package compile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/intenttest"
)

// Two services may declare the same object in the same channel if one hands it over to the other, in any order of the services. A third
// one, or a move to another service, is a duplicate.
func TestTwoServicesDeclareAnObjectThatMoves_D11(t *testing.T) {
	object := func(to string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared, annotations: {" + to + "}}}\n"
	}
	text := cluster("kubernetes: {manifests: [web.yaml]}") +
		"\n---\n{apiVersion: converge/v1, kind: Service, name: api, kubernetes: {manifests: [api.yaml]}}\n" +
		"---\n{apiVersion: converge/v1, kind: Service, name: other, kubernetes: {manifests: [other.yaml]}}\n"
	for name, row := range map[string]struct {
		web, api, other string
		refused         bool
	}{
		"the first hands it over":  {web: object("converge/moved-to: api"), api: object(""), other: configMap("x")},
		"the second hands it over": {web: object("converge/moved-from: api"), api: object("converge/moved-to: web"), other: configMap("x")},
		"to another service":       {web: object("converge/moved-to: other"), api: object(""), other: configMap("x"), refused: true},
		"only taken":               {web: object(""), api: object("converge/moved-from: web"), other: configMap("x"), refused: true},
		"a third one":              {web: object("converge/moved-to: api"), api: object(""), other: object(""), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := intenttest.Load(text, "web.yaml", row.web, "api.yaml", row.api, "other.yaml", row.other)
			if row.refused {
				require.ErrorContains(t, err, "[duplicate-object]")
			} else {
				require.NoError(t, err)
			}
		})
	}
}
