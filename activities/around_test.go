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

func refs(channels ...string) protocol.ObserveRequest {
	r := protocol.ObserveRequest{Interval: time.Millisecond}
	for _, c := range channels {
		r.Instances = append(r.Instances, protocol.InstanceRef{Channel: c, Known: readingOf("v1").Digest()})
	}
	return r
}

// An instance that hangs delays no news of another, and its own come when it answers.
func TestHangingInstanceHoldsUpNobody_A7(t *testing.T) {
	release := make(chan struct{})
	at := func(ctx context.Context, _ protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		if ref.Channel == "hangs" {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return readingOf("v3")
		}
		return readingOf("v2")
	}
	news := lookAround(t.Context(), refs("hangs", "moves"), at)
	require.Contains(t, news, "moves")
	require.NotContains(t, news, "hangs")
	close(release)
	require.Contains(t, lookAround(t.Context(), refs("hangs", "moves"), at), "hangs")
}

// While one hangs, the others are looked at again and again.
func TestOthersAreLookedAtMeanwhile_A7(t *testing.T) {
	var looks atomic.Int64
	at := func(ctx context.Context, _ protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		if ref.Channel == "hangs" {
			<-ctx.Done()
			return readingOf("v1")
		}
		if looks.Add(1) < 3 {
			return readingOf("v1")
		}
		return readingOf("v2")
	}
	require.Equal(t, map[string]entities.Reading{"moves": readingOf("v2")}, lookAround(t.Context(), refs("hangs", "moves"), at))
}

func TestNothingNew(t *testing.T) {
	at := func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading {
		return readingOf("v1")
	}
	require.Empty(t, lookAround(t.Context(), refs("a", "b"), at))
	require.Empty(t, lookAround(t.Context(), refs(), at))
}

func TestStoppedLookCountsForNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	at := func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading {
		cancel()
		return readingOf("v2")
	}
	require.Empty(t, lookAround(ctx, refs("a"), at))
}
