package kubernetes

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes"
)

// withFence is an instance with the fence of a target of an installation.
func withFence(in runtimes.Request, epoch, sequence int64) runtimes.Request {
	in.Fence = &runtimes.Fence{Installation: "ours", Epoch: epoch, Sequence: sequence, Target: "digest of " + in.FullVersion, FullVersion: in.FullVersion}
	return in
}

// recordedFence is the fence in the inventory of the test's instance; nil when there is none.
func (d *recordingCluster) recordedFence() *runtimes.Fence {
	d.Helper()
	inventory := d.liveObject("ConfigMap", "converge."+d.namespace+".web.prod")
	if inventory == nil {
		return nil
	}
	f, err := parseFence(inventory)
	require.NoError(d, err)
	return f
}

// secondWorker is another worker on the same cluster and instance, with watches of its own.
func (b *testCluster) secondWorker() *recordingCluster {
	return (&testCluster{TB: b.TB, Runtime: b.Runtime, admin: b.admin, proxy: b.proxy, namespace: b.namespace}).recording()
}

// waitArrived waits until the held request has arrived.
func waitArrived(t *testing.T, arrived chan struct{}, ended chan error) {
	t.Helper()
	select {
	case <-arrived:
	case err := <-ended:
		require.FailNow(t, "it ended before", "%v", err)
	}
}

// holdRequest holds the first matching request: arrived is closed when it has come, and it continues when release is closed.
func (d *recordingCluster) holdRequest(matches func(*http.Request) bool) (arrived, release chan struct{}) {
	arrived, release = make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if matches(req) {
			first := false
			once.Do(func() { first = true })
			if first {
				close(arrived)
				<-release
			}
		}
		return send()
	})
	return arrived, release
}

// mustFence applies, and returns the error of the fence; nothing was written.
func (d *recordingCluster) mustFence(in runtimes.Request) string {
	d.Helper()
	d.takeWrites()
	_, err := d.Apply(d.Context(), in)
	var refusal *runtimes.FencedError
	require.ErrorAs(d, err, &refusal)
	writes, _ := d.takeWrites()
	require.Empty(d, writes)
	return refusal.Error()
}

// A target that is earlier than the one in the inventory, or another one with the same sequence, is refused before anything is
// written. The same target passes again, and so does a later one.
func TestAnEarlierApplyIsRefusedByTheInventory(t *testing.T) {
	d := newTestCluster(t).recording()
	v1, v2, v3 := d.instance("v1", configOf("settings", "a")), d.instance("v2", configOf("settings", "b")), d.instance("v3", configOf("settings", "c"))
	d.mustApply(v1)
	require.Nil(t, d.recordedFence(), "without a fence none is written")
	d.mustApply(withFence(v2, 2, 7))
	require.Equal(t, withFence(v2, 2, 7).Fence, d.recordedFence())

	require.Equal(t, "refused: v2 is newer (7), from a run that is unknown here (6)", d.mustFence(withFence(v1, 2, 6)))
	require.Equal(t, "refused: v2 is newer, from the moved installation (epoch 2; here it is 1)", d.mustFence(withFence(v3, 1, 40)))
	require.Equal(t, "refused: v2 has the same sequence (7), from a run that is unknown here", d.mustFence(withFence(v3, 2, 7)))
	require.Equal(t, "b", nestedMap(d.liveObject("ConfigMap", "settings").Object, "data")["a"])

	d.waitWatchedAs("ConfigMap", "converge."+d.namespace+".web.prod")
	d.waitWatchedAs("ConfigMap", "settings")
	require.Equal(t, []string{"unchanged 1 object"}, d.mustApply(withFence(v2, 2, 7)))
	d.patchAs("kubectl-edit", "ConfigMap", "settings", `{"data": {"a": "by hand"}}`)
	d.waitWatchedAs("ConfigMap", "settings")
	d.takeWrites()
	require.Contains(t, strings.Join(d.mustApply(withFence(v2, 2, 7)), "\n"), "configured ConfigMap/settings", "a repair")
	writes, _ := d.takeWrites()
	require.Len(t, writes, 1, "only the repaired object")
	d.mustApply(withFence(v3, 2, 8))
	d.mustApply(withFence(v1, 3, 1))
	require.Equal(t, withFence(v1, 3, 1).Fence, d.recordedFence())
	d.mustApply(v2) // of a workflow that counts no targets
	require.Equal(t, withFence(v1, 3, 1).Fence, d.recordedFence())
}

// A fence that cannot be read lets nothing through, and says what to do.
func TestAnUnreadableFenceRefuses(t *testing.T) {
	d := newTestCluster(t).recording()
	v1 := withFence(d.instance("v1", configOf("settings", "a")), 1, 1)
	d.mustApply(v1)
	name := "converge." + d.namespace + ".web.prod"
	d.patchAs("kubectl-edit", "ConfigMap", name, `{"metadata": {"annotations": {"converge/fence": "seven"}}}`)
	d.waitWatchedAs("ConfigMap", name)
	require.Contains(t, d.mustRefuse(v1, false), "without the annotation the next apply is accepted")
	d.patchAs("kubectl-edit", "ConfigMap", name, `{"metadata": {"annotations": {"converge/fence": null}}}`)
	d.waitWatchedAs("ConfigMap", name)
	d.mustApply(v1)
	require.Equal(t, v1.Fence, d.recordedFence())
}

// Two workers of one installation whose stores know nothing of one another, an old one and its moved copy, apply at the same
// time, and both have read the inventory before either writes it. The one that the server lets in second reads again: the older
// one writes nothing after the newer one.
func TestTheOlderOfTwoStoresWritesNothingAfterTheNewer(t *testing.T) {
	for _, known := range []string{"an inventory", "none"} {
		t.Run("there is "+known, func(t *testing.T) {
			b := newTestCluster(t)
			older, newer := b.recording(), b.secondWorker()
			inventory := "converge." + b.namespace + ".web.prod"
			if known == "an inventory" {
				older.mustApply(withFence(b.instance("v0", configOf("settings", "zero")), 1, 1))
				older.waitWatchedAs("ConfigMap", inventory)
			}
			older.takeWrites()
			arrived, goOn := older.holdRequest(isWrite)
			ended := make(chan error, 1)
			go func() {
				_, err := older.Apply(t.Context(), withFence(b.instance("v1", configOf("settings", "one")), 1, 2))
				ended <- err
			}()
			waitArrived(t, arrived, ended) // it has read the inventory, and tried its objects
			newer.mustApply(withFence(b.instance("v2", configOf("settings", "two")), 2, 1))
			close(goOn)
			var refusal *runtimes.FencedError
			require.ErrorAs(t, <-ended, &refusal)
			require.Equal(t, "v2", refusal.By.FullVersion)
			writes, _ := older.takeWrites()
			require.Len(t, writes, 1, "of the inventory, which the server refused")
			require.Equal(t, "two", nestedMap(newer.liveObject("ConfigMap", "settings").Object, "data")["a"])
			require.EqualValues(t, 2, newer.recordedFence().Epoch)
		})
	}
}

// An older apply that was admitted, and then was suspended while a newer one came, stops before its next object.
func TestASuspendedApplyStops(t *testing.T) {
	b := newTestCluster(t)
	older, newer := b.recording(), b.secondWorker()
	var reads atomic.Int32
	arrived, goOn := older.holdRequest(func(req *http.Request) bool {
		return strings.HasSuffix(req.URL.Path, "/late") && req.Method == http.MethodGet && reads.Add(1) == 2
	})
	ended := make(chan error, 1)
	objects := func(value string) []string {
		return []string{configOf("settings", value), configOf("late", value, `converge/wave: "1"`)}
	}
	go func() {
		_, err := older.Apply(t.Context(), withFence(b.instance("v1", objects("one")...), 1, 2))
		ended <- err
	}()
	waitArrived(t, arrived, ended) // at its second wave, which it tries again
	newer.mustApply(withFence(b.instance("v2", objects("two")...), 1, 3))
	older.waitWatchedAs("ConfigMap", "converge."+b.namespace+".web.prod")
	older.takeWrites()
	close(goOn)
	var refusal *runtimes.FencedError
	require.ErrorAs(t, <-ended, &refusal)
	writes, _ := older.takeWrites()
	require.Empty(t, writes)
	for _, name := range []string{"settings", "late"} {
		require.Equal(t, "two", nestedMap(newer.liveObject("ConfigMap", name).Object, "data")["a"])
	}
}

// A finished or an interrupted removal is refused after a later apply.
func TestAnEarlierRemovalIsRefused(t *testing.T) {
	d := newTestCluster(t).recording()
	v2 := withFence(d.instance("v2", configOf("settings", "two")), 1, 4)
	d.mustApply(v2)
	earlier := v2
	earlier.Fence = &runtimes.Fence{Installation: "ours", Epoch: 1, Sequence: 3}
	d.takeWrites()
	var refusal *runtimes.FencedError
	require.ErrorAs(t, d.Remove(t.Context(), earlier), &refusal)
	writes, _ := d.takeWrites()
	require.Empty(t, writes)

	later := v2
	later.Fence = &runtimes.Fence{Installation: "ours", Epoch: 1, Sequence: 5}
	arrived, goOn := d.holdRequest(func(req *http.Request) bool { return req.Method == http.MethodDelete })
	ended := make(chan error, 1)
	go func() { ended <- d.Remove(t.Context(), later) }()
	waitArrived(t, arrived, ended) // the inventory says that it is being removed
	require.Equal(t, "refused: its removal is newer (5), from a run that is unknown here (4)", d.mustFence(v2))
	close(goOn)
	require.NoError(t, <-ended)
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
	require.Nil(t, d.liveObject("ConfigMap", "converge."+d.namespace+".web.prod"))
}

// What the fence costs: one small write where the target is another one, and nothing where it is the same.
func TestRequestsForTheFence(t *testing.T) {
	asked := map[bool][]int{}
	for _, with := range []bool{false, true} {
		d := newExclusiveTestCluster(t).recording()
		at := func(version string, sequence int64) runtimes.Request {
			in := d.instance(version, configOf("settings", version), configOf("more", "same"))
			if with {
				return withFence(in, 1, sequence)
			}
			return in
		}
		for _, in := range []runtimes.Request{at("v1", 1), at("v1", 1), at("v2", 2), at("v2", 2)} {
			d.takeWrites()
			d.mustApply(in)
			_, n := d.takeWrites()
			asked[with] = append(asked[with], n)
			for _, name := range []string{"converge." + d.namespace + ".web.prod", "settings", "more"} {
				d.waitWatchedAs("ConfigMap", name)
			}
		}
	}
	require.Equal(t, []int{2, 4, 2}, asked[false][1:])
	require.Equal(t, []int{2, 5, 2}, asked[true][1:])
	require.Equal(t, asked[false][0], asked[true][0], "the first apply always creates the inventory")
}
