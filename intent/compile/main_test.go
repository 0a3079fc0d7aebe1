package compile

import (
	"os"
	"testing"

	"github.com/converge-engine/converge/intent/render"
)

func TestMain(m *testing.M) {
	render.InProcess()
	os.Exit(m.Run())
}
