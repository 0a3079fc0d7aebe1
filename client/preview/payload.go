package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// maxValue bounds a value in bytes, maxChanges how many there are.
const (
	maxValue   = 300
	maxChanges = 100
)

// payloadChanges lists the values of a payload that differ, sorted by path after the version. Secrets are
// references in it, so none is shown.
func payloadChanges(before *entities.Payload, now entities.Payload, present, version string) []protocol.PreviewField {
	old, next := flat(before), flat(&now)
	var out []protocol.PreviewField
	if present == "" {
		out = append(out, protocol.PreviewField{Path: "version", New: value(version)})
	} else if present != version {
		out = append(out, protocol.PreviewField{Path: "version", Old: value(present), New: value(version)})
	}
	all := maps.Clone(old)
	maps.Copy(all, next)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if old[path] != next[path] && len(out) < maxChanges {
			out = append(out, protocol.PreviewField{Path: path, Old: cut(old[path]), New: cut(next[path])})
		}
	}
	return out
}

// flat is a payload as paths and JSON values.
func flat(p *entities.Payload) map[string]string {
	out := map[string]string{}
	if p == nil {
		return out
	}
	out["runtime"] = value(p.Runtime)
	for name, v := range p.Address {
		out["address."+name] = value(v)
	}
	for name, v := range p.Parameters {
		out["parameters."+name] = value(v)
	}
	for name, v := range p.Constants {
		out["constants."+name] = value(v)
	}
	if p.Kubernetes != nil {
		out["objects"] = value(p.Kubernetes.Bundle)
		for name, v := range p.Kubernetes.Values {
			out["values."+name] = value(v)
		}
	}
	if p.Custom != nil {
		flatCustom(p.Custom, out)
	}
	return out
}

func flatCustom(p *entities.CustomPayload, out map[string]string) {
	for name, v := range p.Env {
		out["env."+name] = value(v.Literal)
		if v.WorkerEnv != "" {
			out["env."+name] = value("${" + v.WorkerEnv + "} of the worker")
		}
	}
	for name, content := range p.Files {
		out["files."+name] = value(fmt.Sprintf("%d bytes, sha256 %s", len(content), entities.DigestOf(content)[:8]))
	}
}

// value is JSON.
func value(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func cut(value string) string {
	if len(value) <= maxValue {
		return value
	}
	return strings.ToValidUTF8(value[:maxValue], "") + "…"
}
