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

// changedRuntimes describes which fields of which runtimes the definitions change: "eks-eu: kubernetes.context". Runtimes that are new are
// not changes.
func changedRuntimes(known, defined []entities.RuntimeDefinition) (texts []string) {
	for _, now := range defined {
		at := slices.IndexFunc(known, func(d entities.RuntimeDefinition) bool { return d.Name == now.Name })
		if at < 0 {
			continue
		}
		fields := now.ChangedFields(known[at])
		if more := len(fields) - maxNamedFields; more > 1 {
			fields = append(fields[:maxNamedFields], fmt.Sprintf("%d more fields", more))
		}
		if len(fields) > 0 {
			texts = append(texts, entities.Clip(now.Name+": "+strings.Join(fields, ", "), protocol.MaxRuntimeChange-len("…")))
		}
	}
	if more := len(texts) - protocol.MaxRuntimeChanges + 1; more > 1 {
		texts = append(texts[:protocol.MaxRuntimeChanges-1], fmt.Sprintf("%d more runtimes", more))
	}
	return texts
}
