package preview

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// previewItems collects the queries for the runtimes, and where their answers belong.
type previewItems struct {
	planner     *Planner
	application string
	incarnation string // the hash of the incarnation to plan; empty: the newest one
	items       []protocol.PreviewItem
	payloads    []entities.Payload
}

// add adds an instance to a service, to be queried.
func (q *previewItems) add(ctx context.Context, s *Service, spec *entities.Spec, id entities.InstanceID, present, version string, payload entities.Payload) error {
	digest, err := q.planner.Store.PutPayload(ctx, payload)
	if err != nil {
		return err
	}
	instance, _ := spec.Instance(id)
	runtime := spec.Runtime(instance.Runtime) // the current runtime, regardless of the one that it was rendered for
	s.Channels = append(s.Channels, Channel{Instance: id, Runtime: instance.Runtime, Present: present, Version: version})
	q.items = append(q.items, protocol.PreviewItem{
		Service: spec.Service, ServiceID: spec.ServiceID, Channel: payload.Channel, Instance: id.Name, Runtime: instance.Runtime,
		RuntimeDigest: runtime.Digest, Remote: runtime.Remote, FullVersion: version, Payload: digest,
	})
	q.payloads = append(q.payloads, payload)
	return nil
}

// dropService removes the queries about the last service.
func (q *previewItems) dropService(service string) {
	for len(q.items) > 0 && q.items[len(q.items)-1].Service == service {
		q.items, q.payloads = q.items[:len(q.items)-1], q.payloads[:len(q.payloads)-1]
	}
}

// resolve sends the queries and stores the answers: the channels are in the order of the items.
func (q *previewItems) resolve(ctx context.Context, plan *Plan, service, what string) error {
	plan.Schema = Schema
	for n := range q.items {
		q.items[n].Incarnation = q.incarnation
	}
	answers, err := q.planner.preview(ctx, q.application, service, what, q.items)
	if err != nil {
		return err
	}
	n := 0
	for s := range plan.Services {
		for c := range plan.Services[s].Channels {
			channel := &plan.Services[s].Channels[c]
			channel.ItemPreview = answers[n]
			channel.Channel = channel.Instance.Channel // the runtime may know it by another name
			if channel.Unseen() && !channel.Removal {
				channel.Sent = q.payloadFields(ctx, plan.Services[s].Service, *channel, q.payloads[n])
			}
			n++
		}
	}
	plan.count()
	return nil
}

// payloadFields compares the payload for a runtime with the one of its current version. If that can no longer be rendered, everything
// counts as new.
func (q *previewItems) payloadFields(ctx context.Context, service string, c Channel, payload entities.Payload) []protocol.PreviewField {
	var before *entities.Payload
	if c.Present != "" {
		draft, err := q.planner.draft(ctx, protocol.PrepareRequest{
			Application: q.application, Service: service, Version: c.Present, FullVersion: c.Present, Instances: []entities.InstanceID{c.Instance},
			Keys: map[string]string{c.Instance.Channel: payload.Channel},
		})
		if there, ok := draft.Payloads[c.Instance]; ok && err == nil {
			before = &there
		}
	}
	return payloadChanges(before, payload, c.Present, c.Version)
}

// maxValue is the limit of a value in bytes, maxChanges that of the number of changes.
const (
	maxValue   = 300
	maxChanges = 100
)

// payloadChanges lists the values of a payload that differ, sorted by path after the version. Secrets are references in it, so none is
// shown.
func payloadChanges(before *entities.Payload, now entities.Payload, present, version string) []protocol.PreviewField {
	old, next := flat(before), flat(&now)
	var out []protocol.PreviewField
	if present == "" {
		out = append(out, protocol.PreviewField{Path: "version", New: jsonText(version)})
	} else if present != version {
		out = append(out, protocol.PreviewField{Path: "version", Old: jsonText(present), New: jsonText(version)})
	}
	all := maps.Clone(old)
	maps.Copy(all, next)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if old[path] != next[path] && len(out) < maxChanges {
			out = append(out, protocol.PreviewField{Path: path, Old: verb.Clip(old[path], maxValue), New: verb.Clip(next[path], maxValue)})
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
	out["runtime"] = jsonText(p.Runtime)
	for name, v := range p.Address {
		out["address."+name] = jsonText(v)
	}
	for name, v := range p.Parameters {
		out["parameters."+name] = jsonText(v)
	}
	for name, v := range p.Constants {
		out["constants."+name] = jsonText(v)
	}
	if b := p.Bundled(); b != nil {
		out["objects"] = jsonText(b.Bundle)
		for name, v := range b.Values {
			out["values."+name] = jsonText(v)
		}
	}
	if p.Custom != nil {
		flatCustom(p.Custom, out)
	}
	return out
}

func flatCustom(p *entities.CustomPayload, out map[string]string) {
	for name, v := range p.Env {
		out["env."+name] = jsonText(v.Literal)
		switch {
		case v.WorkerEnv != "":
			out["env."+name] = jsonText("${" + v.WorkerEnv + "} of the worker")
		case v.IsSecret():
			out["env."+name] = jsonText(v.Reference())
		}
	}
	for name, content := range p.Files {
		out["files."+name] = jsonText(fmt.Sprintf("%d bytes, sha256 %s", len(content), entities.DigestOf(content)[:8]))
	}
}

// jsonText is v as JSON.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
