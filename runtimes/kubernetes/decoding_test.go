package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Watch events of any type and form are decoded with the same result as by client-go, invalid ones too.
func TestEventsAreDecodedAsByClientGo(t *testing.T) {
	theirs := dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
	decoded := func(by runtime.NegotiatedSerializer, data string) (of string, object runtime.Object, kind any, err error) {
		objects, events, _, err := runtime.NewClientNegotiator(by, metav1.Unversioned).StreamDecoder(runtime.ContentTypeJSON, nil)
		require.NoError(t, err)
		var event metav1.WatchEvent
		into, _, err := events.Decode([]byte(data), nil, &event)
		if err != nil {
			return "", nil, nil, err
		}
		require.Same(t, &event, into)
		object, gvk, err := objects.Decode(event.Object.Raw, nil, nil)
		return event.Type, object, gvk, err
	}
	for _, data := range []string{
		`{"type":"ADDED","object":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","generation":3},"spec":{"replicas":2,"x":1.5,"big":9007199254740993}}}`,
		`{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"a":"\"},\"object\":{"}}}}` + "\n",
		`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"12746"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`,
		`{"object":{"apiVersion":"v1","kind":"Pod"},"type":"ADDED"}`,
		`{ "type": "ADDED", "object": {"apiVersion":"v1","kind":"Pod"}}`,
		`{"type":"ADD\u0045D","object":{"apiVersion":"v1","kind":"Pod"}}`,
		`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":null}}`,
		`{"type":"ADDED","object":{"kind":"Pod"}}`,
		`{"type":"ADDED","object":{"apiVersion":"v1"}}`,
		`{"type":"ADDED","object":{"apiVersion":"a/b/c","kind":"Pod"}}`,
		`{"type":"ADDED","object":{"apiVersion":1,"kind":"Pod"}}`,
		`{"type":"ADDED","object":[]}`, `{"type":"ADDED","object":null}`, `{"type":"ADDED"}`, `{"type":"","object":{}}`, `{}`,
	} {
		of, object, kind, err := decoded(theirs, data)
		our, ours, ourKind, ourErr := decoded(singlePassSerializer{theirs}, data)
		require.Equal(t, of, our, data)
		require.Equal(t, object, ours, data)
		require.Equal(t, err == nil, ourErr == nil, "%s: %v, %v", data, err, ourErr)
		if err == nil {
			require.Equal(t, kind, ourKind, data)
		}
	}
}
