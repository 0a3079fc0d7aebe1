package preview

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func TestPayload(t *testing.T) {
	long := strings.Repeat("ö", 400)
	old := entities.Payload{
		Runtime: "edge", Address: map[string]string{"namespace": "a"}, Parameters: map[string]any{"replicas": 2}, Constants: map[string]string{"zone": "x"},
		Custom: &entities.CustomPayload{
			Env:   map[string]entities.Value{"SAME": {Literal: "s"}, "GONE": {Literal: ""}, "LONG": {Literal: long}, "TOKEN": {Literal: "t"}},
			Files: map[string]string{"a.txt": "one"},
		},
	}
	now := entities.Payload{
		Runtime: "edge", Address: map[string]string{"namespace": "b"}, Parameters: map[string]any{"replicas": 3}, Constants: map[string]string{"zone": "x"},
		Custom: &entities.CustomPayload{
			Env:   map[string]entities.Value{"SAME": {Literal: "s"}, "LONG": {Literal: long + "!"}, "TOKEN": {WorkerEnv: "EDGE"}},
			Files: map[string]string{"a.txt": "other"},
		},
	}
	got := payloadChanges(&old, now, "v1", "v2")
	var lines []string
	for _, f := range got {
		if f.Path == "env.LONG" {
			require.LessOrEqual(t, len(f.New), maxValue+len("…"))
			f.Old, f.New = "long", "longer"
		}
		lines = append(lines, f.Path+" "+f.Old+" "+f.New)
	}
	require.Equal(t, []string{
		`version "v1" "v2"`, `address.namespace "a" "b"`, `env.GONE "" `, `env.LONG long longer`, `env.TOKEN "t" "${EDGE} of the worker"`,
		`files.a.txt "3 bytes, sha256 ` + entities.DigestOf("one")[:8] + `" "5 bytes, sha256 ` + entities.DigestOf("other")[:8] + `"`,
		`parameters.replicas 2 3`,
	}, lines)
	require.Empty(t, payloadChanges(&now, now, "v2", "v2"))
	require.Equal(t, []protocol.PreviewField{{Path: "version", New: `"v1"`}, {Path: "runtime", New: `"edge"`}}, payloadChanges(nil, entities.Payload{Runtime: "edge"}, "", "v1"))

	bundle := func(digest string, replicas int) entities.Payload {
		return entities.Payload{Kubernetes: &entities.KubernetesPayload{Bundled: entities.Bundled{Bundle: digest, Values: map[string]any{"params.replicas": replicas}}}}
	}
	before := bundle("aa", 1)
	require.Equal(t, []protocol.PreviewField{{Path: "objects", Old: `"aa"`, New: `"bb"`}, {Path: "values.params.replicas", Old: "1", New: "2"}},
		payloadChanges(&before, bundle("bb", 2), "v1", "v1"))
}
