package activities

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func readingOf(version string) entities.Reading {
	return entities.Reading{Objects: []entities.Object{{Name: "web", Type: "x", Versions: []entities.ObjectVersion{{Version: version}}}}}
}

func refs(instances ...string) protocol.ObserveRequest {
	r := protocol.ObserveRequest{Interval: time.Millisecond}
	for _, name := range instances {
		r.Instances = append(r.Instances, protocol.InstanceRef{ID: entities.InstanceID{Channel: "prod", Name: name}, KnownDigest: readingOf("v1").Digest()})
	}
	return r
}

// A hung instance does not delay the news of others. Its own news is returned when it answers.
func TestHangingInstanceDoesNotDelayOthers_A7(t *testing.T) {
	release := make(chan struct{})
	at := func(ctx context.Context, _ protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		if ref.ID.Name == "hangs" {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return readingOf("v3")
		}
		return readingOf("v2")
	}
	news := observeAll(t.Context(), at, refs("hangs", "moves"))
	require.Equal(t, map[entities.InstanceID]entities.Reading{{Channel: "prod", Name: "moves"}: readingOf("v2")}, news)
	close(release)
	require.Contains(t, observeAll(t.Context(), at, refs("hangs", "moves")), entities.InstanceID{Channel: "prod", Name: "hangs"})
}

// While one instance hangs, the others are observed repeatedly.
func TestOthersAreObservedWhileOneHangs_A7(t *testing.T) {
	var readings atomic.Int64
	at := func(ctx context.Context, _ protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		if ref.ID.Name == "hangs" {
			<-ctx.Done()
			return readingOf("v1")
		}
		if readings.Add(1) < 3 {
			return readingOf("v1")
		}
		return readingOf("v2")
	}
	require.Equal(t, map[entities.InstanceID]entities.Reading{{Channel: "prod", Name: "moves"}: readingOf("v2")}, observeAll(t.Context(), at, refs("hangs", "moves")))
}

func TestObserveAllWithoutNews(t *testing.T) {
	at := func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading {
		return readingOf("v1")
	}
	require.Empty(t, observeAll(t.Context(), at, refs("a", "b")))
	require.Empty(t, observeAll(t.Context(), at, refs()))
}

func TestStoppedObservationIsDiscarded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	at := func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading {
		cancel()
		return readingOf("v2")
	}
	require.Empty(t, observeAll(ctx, at, refs("a")))
}
