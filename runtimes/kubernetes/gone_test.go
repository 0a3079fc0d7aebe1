package kubernetes

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// answersOnceClient is the client of an API server that answers once, and then never again.
type answersOnceClient struct {
	dynamic.ResourceInterface
	live  *unstructured.Unstructured
	asked int
}

func (a *answersOnceClient) Get(ctx context.Context, _ string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if a.asked++; a.asked == 1 {
		return a.live, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// The finalizers that an object waits for are reported as last seen, also if the time ends during another request.
func TestTheAwaitedObjectIsReportedWithoutAnAnswer(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "migrate", "deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": []any{"example.com/never"},
	}}}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*removalPollInterval)
		defer cancel()
		at := &answersOnceClient{live: live}
		err := pollUntilGone(ctx, at, "delete Job shop/migrate", "migrate", func(*unstructured.Unstructured) bool { return false })
		require.Equal(t, 2, at.asked)
		require.ErrorContains(t, err, "it is still there: ")
		require.ErrorContains(t, err, "example.com/never")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
