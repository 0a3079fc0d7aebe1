package secret

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities"
)

// ForChannel is a source for an application in a release channel: it has only the values that were captured for the same application and
// channel.
func ForChannel(source Source, application, channel string) Source {
	return inChannel{source, application, channel}
}

type inChannel struct {
	source               Source
	application, channel string
}

// Resolve implements Source.
func (i inChannel) Resolve(ctx context.Context, v entities.Value) (string, error) {
	if v.Captured == "" {
		if i.source == nil {
			return Environment{}.Resolve(ctx, v)
		}
		return i.source.Resolve(ctx, v)
	}
	worker, _ := i.source.(*Worker)
	if worker == nil || worker.Captured == nil {
		return "", fmt.Errorf("%s, but this worker has no captured values", v.Reference())
	}
	all, err := worker.Captured(ctx, i.application, i.channel, v.Captured)
	if err != nil {
		return "", fmt.Errorf("%s: %w", v.Reference(), err)
	}
	text, ok := all[v.Key]
	if !ok {
		return "", fmt.Errorf("%s, which has not been captured", v.Reference())
	}
	return text, nil
}
