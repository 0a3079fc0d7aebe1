package requests_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/bench/requests"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, url, contentType, want, name string }{
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web?fieldManager=converge&force=false", "application/apply-patch+yaml", "apply deployments", "web"},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web?dryRun=All", "application/apply-patch+yaml", "apply deployments (dry run)", "web"},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale", "application/merge-patch+json", "patch deployments/scale", "web"},
		{"GET", "/api/v1/namespaces/shop/configmaps/a", "", "get configmaps", "a"},
		{"GET", "/api/v1/pods?labelSelector=x", "", "list pods", ""},
		{"GET", "/api/v1/namespaces/shop/pods?watch=true", "", "watch pods", ""},
		{"GET", "/api/v1/namespaces/shop", "", "get namespaces", "shop"},
		{"GET", "/apis", "", "get discovery", ""},
		{"GET", "/apis/apps/v1", "", "get discovery", ""},
		{"GET", "/api/v1", "", "get discovery", ""},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", "create selfsubjectaccessreviews", ""},
		{"DELETE", "/api/v1/namespaces/shop/configmaps/a", "", "delete configmaps", "a"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "https://cluster"+c.url, nil)
		require.NoError(t, err)
		req.Header.Set("Content-Type", c.contentType)
		kind, name := requests.Classify(req)
		require.Equal(t, c.want, kind.String(), c.url)
		require.Equal(t, c.name, name, c.url)
	}
}

type nothing struct{}

func (nothing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200}, nil
}

func TestCounter(t *testing.T) {
	t.Parallel()
	var c requests.Counter
	trip := c.Wrap(nothing{})
	send := func(query string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://cluster/apis/apps/v1/namespaces/a/deployments/web"+query, nil)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
		resp, err := trip.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
	}
	send("")
	applies := c.Watch("web")
	require.Empty(t, applies.Written, "what was before is not sent")
	send("?dryRun=All")
	require.Len(t, applies.Asked, 1)
	require.Empty(t, applies.Written)
	send("")
	send("")
	require.Len(t, applies.Written, 1, "the first is sent, and no receiver is waited for")
	tally := c.Take()
	require.Equal(t, 4, tally.Total())
	require.Equal(t, "1.5 apply deployments, 0.5 apply deployments (dry run)", tally.Per(2))
	require.Zero(t, c.Take().Total())
	require.Equal(t, 2, requests.Tally{{Verb: "watch", Resource: "pods"}: 3, {Verb: "list", Resource: "pods"}: 2}.Asked())
}
