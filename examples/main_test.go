package examples

import (
	"os"
	"testing"

	rendering "github.com/converge-engine/converge/intent/render"
)

func TestMain(m *testing.M) {
	rendering.InProcess()
	os.Exit(m.Run())
}
