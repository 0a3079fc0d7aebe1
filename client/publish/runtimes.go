package publish

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// maxNamedFields limits the changed fields of a runtime that are named.
const maxNamedFields = 5

// runtimeChanges are the differences between the runtimes of an application and the published ones. An application may define runtimes that
// only services of other applications use: then nothing else changes.
type runtimeChanges struct {
	changes   []string
	published bool // every definition is the published one
}

func compareRuntimes(known, defined []entities.RuntimeDefinition) runtimeChanges {
	r := runtimeChanges{published: true}
	for _, now := range defined {
		at := slices.IndexFunc(known, func(d entities.RuntimeDefinition) bool { return d.Name == now.Name })
		if at < 0 {
			r.changes, r.published = append(r.changes, "new runtime "+now.Name), false
			continue
		}
		r.published = r.published && entities.DigestOf(known[at]) == entities.DigestOf(now)
		if fields := now.ChangedFields(known[at]); len(fields) > 0 {
			if more := len(fields) - maxNamedFields; more > 1 {
				fields = append(fields[:maxNamedFields], fmt.Sprintf("%d more fields", more))
			}
			r.changes = append(r.changes, "changed runtime "+now.Name+": "+strings.Join(fields, ", "))
		}
	}
	return r
}

// texts describes the changes within the limits of a PublishRequest.
func (r runtimeChanges) texts() (texts []string) {
	for _, change := range r.changes {
		texts = append(texts, entities.Clip(entities.Visible(change), protocol.MaxRuntimeChange-len("…")))
	}
	if more := len(texts) - protocol.MaxRuntimeChanges + 1; more > 1 {
		texts = append(texts[:protocol.MaxRuntimeChanges-1], fmt.Sprintf("%d more changes of runtimes", more))
	}
	return texts
}
