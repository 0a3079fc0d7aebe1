package kubernetes

import (
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
)

// health is how far an object is, and what there is to say about it. It reads the object alone, so
// that waves, which wait for it, and looks agree.
func health(o *unstructured.Unstructured) (entities.ObjectStatus, string) {
	_ = status.CurrentStatus
	return entities.ObjectPending, ""
}
