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

// fenced is an instance with a place among the targets of an installation.
func fenced(in runtimes.Instance, epoch, sequence int64) runtimes.Instance {
	in.Fence = &runtimes.Fence{Installation: "ours", Epoch: epoch, Sequence: sequence, Target: "digest of " + in.FullVersion, FullVersion: in.FullVersion}
	return in
}

// stands is the fence in the inventory of the bench's instance; nil when there is none.
func (d *desk) stands() *runtimes.Fence {
	d.Helper()
	inventory := d.there("ConfigMap", "converge."+d.namespace+".web.prod")
	if inventory == nil {
		return nil
	}
	f, err := fenceIn(inventory)
	require.NoError(d, err)
	return f
}

// beside is another worker on the same cluster and instance, with watches of its own.
func (b *bench) beside() *desk {
	return (&bench{TB: b.TB, Runtime: b.Runtime, admin: b.admin, gate: b.gate, namespace: b.namespace}).desk()
}

// arrive waits until what is held has arrived there.
func arrive(t *testing.T, arrived chan struct{}, ended chan error) {
	t.Helper()
	select {
	case <-arrived:
	case err := <-ended:
		require.FailNow(t, "it ended before", "%v", err)
	}
}

// holding has the first request of a kind wait: arrived is closed when it has come, and it goes on when goOn is.
func (d *desk) holding(is func(*http.Request) bool) (arrived, goOn chan struct{}) {
	arrived, goOn = make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.failing(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if is(req) {
			first := false
			once.Do(func() { first = true })
			if first {
				close(arrived)
				<-goOn
			}
		}
		return send()
	})
	return arrived, goOn
}

// fencedOff applies, and returns what refused that; nothing was written.
func (d *desk) fencedOff(in runtimes.Instance) string {
	d.Helper()
	d.wrote()
	_, err := d.Apply(d.Context(), in)
	var refusal *runtimes.FencedError
	require.ErrorAs(d, err, &refusal)
	writes, _ := d.wrote()
	require.Empty(d, writes)
	return refusal.Error()
}

// What is earlier than what the inventory says, or another target in the same place, is refused before anything is
// written. The same again passes, and so does what comes after.
func TestAnEarlierApplyIsRefusedByTheInventory(t *testing.T) {
	d := reach(t).desk()
	v1, v2, v3 := d.instance("v1", configOf("settings", "a")), d.instance("v2", configOf("settings", "b")), d.instance("v3", configOf("settings", "c"))
	d.applied(v1)
	require.Nil(t, d.stands(), "without a fence none is written")
	d.applied(fenced(v2, 2, 7))
	require.Equal(t, fenced(v2, 2, 7).Fence, d.stands())

	require.Equal(t, "refused: v2 is newer (7), from a run that is unknown here (6)", d.fencedOff(fenced(v1, 2, 6)))
	require.Equal(t, "refused: v2 is newer, from the moved installation (epoch 2; here it is 1)", d.fencedOff(fenced(v3, 1, 40)))
	require.Equal(t, "refused: v2 has the same sequence (7), from a run that is unknown here", d.fencedOff(fenced(v3, 2, 7)))
	require.Equal(t, "b", inside(d.there("ConfigMap", "settings").Object, "data")["a"])

	d.caughtUp("ConfigMap", "converge."+d.namespace+".web.prod")
	d.caughtUp("ConfigMap", "settings")
	require.Equal(t, []string{"unchanged 1 object"}, d.applied(fenced(v2, 2, 7)))
	d.edits("kubectl-edit", "ConfigMap", "settings", `{"data": {"a": "by hand"}}`)
	d.caughtUp("ConfigMap", "settings")
	d.wrote()
	require.Contains(t, strings.Join(d.applied(fenced(v2, 2, 7)), "\n"), "configured ConfigMap/settings", "a repair")
	writes, _ := d.wrote()
	require.Len(t, writes, 1, "only the repaired object")
	d.applied(fenced(v3, 2, 8))
	d.applied(fenced(v1, 3, 1))
	require.Equal(t, fenced(v1, 3, 1).Fence, d.stands())
	d.applied(v2) // of a workflow that counts no targets
	require.Equal(t, fenced(v1, 3, 1).Fence, d.stands())
}

// A fence that cannot be read lets nothing through, and says what to do.
func TestAFenceThatCannotBeReadRefuses(t *testing.T) {
	d := reach(t).desk()
	v1 := fenced(d.instance("v1", configOf("settings", "a")), 1, 1)
	d.applied(v1)
	name := "converge." + d.namespace + ".web.prod"
	d.edits("kubectl-edit", "ConfigMap", name, `{"metadata": {"annotations": {"converge/fence": "seven"}}}`)
	d.caughtUp("ConfigMap", name)
	require.Contains(t, d.refused(v1, false), "without the annotation the next apply is accepted")
	d.edits("kubectl-edit", "ConfigMap", name, `{"metadata": {"annotations": {"converge/fence": null}}}`)
	d.caughtUp("ConfigMap", name)
	d.applied(v1)
	require.Equal(t, v1.Fence, d.stands())
}

// Two workers of one installation whose stores know nothing of one another, an old one and its moved copy, apply at the same
// time, and both have read the inventory before either writes it. The one that the server lets in second reads again: the older
// one writes nothing after the newer one.
func TestOfTwoStoresTheOlderWritesNothingAfterTheNewer(t *testing.T) {
	for _, known := range []string{"an inventory", "none"} {
		t.Run("there is "+known, func(t *testing.T) {
			b := reach(t)
			older, newer := b.desk(), b.beside()
			inventory := "converge." + b.namespace + ".web.prod"
			if known == "an inventory" {
				older.applied(fenced(b.instance("v0", configOf("settings", "zero")), 1, 1))
				older.caughtUp("ConfigMap", inventory)
			}
			older.wrote()
			arrived, goOn := older.holding(isWrite)
			ended := make(chan error, 1)
			go func() {
				_, err := older.Apply(t.Context(), fenced(b.instance("v1", configOf("settings", "one")), 1, 2))
				ended <- err
			}()
			arrive(t, arrived, ended) // it has read, and tried its objects
			newer.applied(fenced(b.instance("v2", configOf("settings", "two")), 2, 1))
			close(goOn)
			var refusal *runtimes.FencedError
			require.ErrorAs(t, <-ended, &refusal)
			require.Equal(t, "v2", refusal.By.FullVersion)
			writes, _ := older.wrote()
			require.Len(t, writes, 1, "of the inventory, which the server refused")
			require.Equal(t, "two", inside(newer.there("ConfigMap", "settings").Object, "data")["a"])
			require.EqualValues(t, 2, newer.stands().Epoch)
		})
	}
}

// An older apply that was let in, and then stood still while a newer one came, stops before its next object.
func TestAnApplyThatStoodStillStops(t *testing.T) {
	b := reach(t)
	older, newer := b.desk(), b.beside()
	var reads atomic.Int32
	arrived, goOn := older.holding(func(req *http.Request) bool {
		return strings.HasSuffix(req.URL.Path, "/late") && req.Method == http.MethodGet && reads.Add(1) == 2
	})
	ended := make(chan error, 1)
	objects := func(value string) []string {
		return []string{configOf("settings", value), configOf("late", value, `converge/wave: "1"`)}
	}
	go func() {
		_, err := older.Apply(t.Context(), fenced(b.instance("v1", objects("one")...), 1, 2))
		ended <- err
	}()
	arrive(t, arrived, ended) // at its second wave, which it tries once more
	newer.applied(fenced(b.instance("v2", objects("two")...), 1, 3))
	older.caughtUp("ConfigMap", "converge."+b.namespace+".web.prod")
	older.wrote()
	close(goOn)
	var refusal *runtimes.FencedError
	require.ErrorAs(t, <-ended, &refusal)
	writes, _ := older.wrote()
	require.Empty(t, writes)
	for _, name := range []string{"settings", "late"} {
		require.Equal(t, "two", inside(newer.there("ConfigMap", name).Object, "data")["a"])
	}
}

// What was taken down, or was to be, is told from what came later.
func TestAnEarlierRemovalIsRefused(t *testing.T) {
	d := reach(t).desk()
	v2 := fenced(d.instance("v2", configOf("settings", "two")), 1, 4)
	d.applied(v2)
	earlier := v2
	earlier.Fence = &runtimes.Fence{Installation: "ours", Epoch: 1, Sequence: 3}
	d.wrote()
	var refusal *runtimes.FencedError
	require.ErrorAs(t, d.Remove(t.Context(), earlier), &refusal)
	writes, _ := d.wrote()
	require.Empty(t, writes)

	later := v2
	later.Fence = &runtimes.Fence{Installation: "ours", Epoch: 1, Sequence: 5}
	arrived, goOn := d.holding(func(req *http.Request) bool { return req.Method == http.MethodDelete })
	ended := make(chan error, 1)
	go func() { ended <- d.Remove(t.Context(), later) }()
	arrive(t, arrived, ended) // the inventory says that it is being taken down
	require.Equal(t, "refused: its removal is newer (5), from a run that is unknown here (4)", d.fencedOff(v2))
	close(goOn)
	require.NoError(t, <-ended)
	require.Nil(t, d.there("ConfigMap", "settings"))
	require.Nil(t, d.there("ConfigMap", "converge."+d.namespace+".web.prod"))
}

// What the fence costs: one small write where the target is another one, and nothing where it is the same.
func TestWhatTheFenceCosts(t *testing.T) {
	asked := map[bool][]int{}
	for _, with := range []bool{false, true} {
		d := reachAlone(t).desk()
		at := func(version string, sequence int64) runtimes.Instance {
			in := d.instance(version, configOf("settings", version), configOf("more", "same"))
			if with {
				return fenced(in, 1, sequence)
			}
			return in
		}
		for _, in := range []runtimes.Instance{at("v1", 1), at("v1", 1), at("v2", 2), at("v2", 2)} {
			d.wrote()
			d.applied(in)
			_, n := d.wrote()
			asked[with] = append(asked[with], n)
			for _, name := range []string{"converge." + d.namespace + ".web.prod", "settings", "more"} {
				d.caughtUp("ConfigMap", name)
			}
		}
	}
	require.Equal(t, []int{2, 4, 2}, asked[false][1:])
	require.Equal(t, []int{2, 5, 2}, asked[true][1:])
	require.Equal(t, asked[false][0], asked[true][0], "the first apply always creates the inventory")
}
