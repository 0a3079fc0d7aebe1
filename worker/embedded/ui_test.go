package embedded

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A name that resolves to 127.0.0.1 in a browser (DNS rebinding) does not reach the UI, which has no other protection: a page of that name
// could read everything and send signals.
func TestUIAnswersToLoopbackOnly(t *testing.T) {
	s := startServer(t, Options{UIPort: -1})
	for _, path := range []string{"/", "/healthz", "/api/v1/settings", "/api/v1/namespaces", "/api/v1/namespaces/default/workflows/x/runs/y/history.json"} {
		for host, refused := range map[string]bool{
			"rebound.example": true, "rebound.example:8233": true, "localhost.rebound.example": true, "127.0.0.1.rebound.example": true, "10.0.0.1": true,
			"localhost": false, "LOCALHOST:80": false, "127.0.0.1:8233": false, "[::1]:8233": false,
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.UIAddress()+path, nil)
			require.NoError(t, err)
			request.Host = host
			response, err := http.DefaultTransport.RoundTrip(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, refused, response.StatusCode == http.StatusMisdirectedRequest, "%s of %q: %s", path, host, response.Status)
		}
	}
}

// The root opens the view, whose texts reach the page as data only.
func TestRootOfTheUIOpensTheView(t *testing.T) {
	s := startServer(t, Options{UIPort: -1, UIView: &View{Name: "Ours </script>", Query: `WorkflowType="Service"`, Columns: []string{"Workflow ID", "Start"}}})
	page := get(t, s.UIAddress()+"/")
	require.Contains(t, page, `[{"label":"Workflow ID"},{"label":"Start"}]`)
	require.Contains(t, page, `/namespaces/default/workflows?query=WorkflowType%3D%22Service%22`)
	require.Equal(t, 1, strings.Count(page, "</script>"), page)
	require.Contains(t, get(t, s.UIAddress()+"/namespaces/default/workflows"), "<html", "other pages stay as they are")
}
