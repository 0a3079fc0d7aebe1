package kubernetes_test

import (
	"os"
	"testing"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// shared is what the tests of this package share. Its workers record what they ask of a cluster.
var shared = stage.New(map[entities.RuntimeKind]activities.Factory{entities.RuntimeKubernetes: recordedKubernetes})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
