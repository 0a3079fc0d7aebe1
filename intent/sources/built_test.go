package sources

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The objects of a text are read once, unless it was built from encrypted files.
func TestObjectsOfBuiltTextsAreReadOnce(t *testing.T) {
	t.Parallel()
	text := func(name, value string) Text {
		return Text{Name: "kustomization " + name, Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: " + value + "}}\n")}
	}
	var known builtTexts
	first := known.read(text("a", "x"), nil)
	require.Len(t, first.Objects, 1)
	require.Same(t, first, known.read(text("a", "x"), nil))
	require.NotSame(t, first, known.read(text("a", "y"), nil), "another text")
	require.NotSame(t, first, known.read(text("b", "x"), nil), "another name, which messages have")
	require.NotSame(t, first, known.read(Text{Name: "kustomization a", Data: text("a", "x").Data, charts: true}, nil), "with hooks of charts")
	require.NotSame(t, first, known.read(text("a", "x"), encrypted{newEncryptedFile("secret.yaml", nil)}), "from encrypted files")

	known.size = maxBuilt
	require.NotSame(t, first, known.read(text("c", "x"), nil))
	require.NotSame(t, first, known.read(text("a", "x"), nil), "forgotten, since it is full")
}
