package kubernetes

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// plainSecret writes the stringData of a Secret into its data, as the server would. The server does not
// remember what came by stringData: a key that is no longer declared there would stay for ever, and
// nobody would see it. Values are checked here, because the server's refusal would show them.
func plainSecret(o *unstructured.Unstructured) error {
	if o.GroupVersionKind() != (schema.GroupVersionKind{Version: "v1", Kind: "Secret"}) {
		return nil
	}
	data := map[string]any{}
	for _, field := range []string{"data", "stringData"} {
		values, ok := o.Object[field].(map[string]any)
		if !ok && o.Object[field] != nil {
			return fmt.Errorf("%s: %s is no mapping", idOf(o), field)
		}
		for _, key := range keysOf(values) {
			text, ok := values[key].(string)
			switch {
			case values[key] == nil:
			case !ok:
				return fmt.Errorf("%s: %s.%s is no string; put it in quotes", idOf(o), field, key)
			case field == "stringData":
				text = base64.StdEncoding.EncodeToString([]byte(text))
			default:
				if _, err := base64.StdEncoding.DecodeString(text); err != nil {
					return fmt.Errorf("%s: data.%s is no base64; stringData takes plain text", idOf(o), key)
				}
			}
			data[key] = text
		}
	}
	if _, plain := o.Object["stringData"]; plain {
		delete(o.Object, "stringData")
		o.Object["data"] = data
	}
	return nil
}
