package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
)

// SearchAttributes are those that a namespace needs, by name.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		protocol.AttrApplication: enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrService:     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrStatus:      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrVersion:     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrWaitingFor:  enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
	}
}

// EnsureSearchAttributes adds the attributes that a namespace lacks. Without them every workflow
// task would fail, so where that is not allowed the error says which commands to give an
// administrator.
func EnsureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	missing := SearchAttributes()
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err == nil {
		for name := range have.GetCustomAttributes() {
			delete(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: namespace, SearchAttributes: missing,
	})
	if err != nil {
		return fmt.Errorf("namespace %s lacks search attributes, and they cannot be added: %w; create them with:\n%s",
			namespace, err, commands(namespace, missing))
	}
	return nil
}

func commands(namespace string, missing map[string]enumspb.IndexedValueType) string {
	var out []string
	for name, kind := range missing {
		out = append(out, fmt.Sprintf("  temporal operator search-attribute create --namespace %s --name %s --type %s", namespace, name, kind))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
