package kubernetes

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// ofService is an instance of another service of the same application and channel.
func ofService(in runtimes.Request, service string) runtimes.Request {
	payload := *in.Payload
	payload.Service, in.Service, in.Payload = service, service, &payload
	return in
}

// An object moves between two services without a deletion: the earlier service hands it over, or the next one says from where it comes.
// Plans show the move on both sides, and pruning of the earlier service leaves the object, in any order.
func TestAnObjectMovesBetweenServices_D11(t *testing.T) {
	const movedTo, movedFrom = `converge/moved-to: api`, `converge/moved-from: web`
	for name, row := range map[string]struct {
		to, from  string // annotations of the object in web and in api
		webFirst  bool   // web is applied before api
		webForbid bool   // api is refused until then
	}{
		"handed over":            {to: movedTo, webFirst: true},
		"handed over, api first": {to: movedTo, webForbid: true},
		"taken":                  {from: movedFrom},
		"both":                   {to: movedTo, from: movedFrom},
		"both, web first":        {to: movedTo, from: movedFrom, webFirst: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			web := func(version string, objects ...string) runtimes.Request {
				return withPrune(d.instance(version, objects...))
			}
			api := func(version string, objects ...string) runtimes.Request {
				return ofService(web(version, objects...), "api")
			}
			other := "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}"
			d.mustApply(web("v1", configOf("settings", "mine"), config2))
			d.mustApply(api("v1", other))
			uid := d.uid("ConfigMap", "settings")
			d.waitWatchedAs("ConfigMap", "settings")

			webNext := web("v2", configOf("settings", "mine", row.to), config2)
			if row.to == "" {
				webNext = web("v1", configOf("settings", "mine"), config2)
			}
			apiNext := api("v2", configOf("settings", "theirs", row.from), other)
			if row.webForbid {
				require.Contains(t, d.mustRefuse(apiNext, false), "it belongs to "+d.namespace+"/web in prod; one object has one owner")
			}
			if row.to != "" {
				plan, err := d.Plan(t.Context(), webNext)
				require.NoError(t, err)
				require.Contains(t, messagesOf(plan), "moves to service api")
			}
			if row.webFirst || row.webForbid {
				d.mustApply(webNext)
				d.waitWatchedAs("ConfigMap", "settings")
			}
			plan, err := d.Plan(t.Context(), apiNext)
			require.NoError(t, err)
			require.Contains(t, messagesOf(plan), "moves here from service web")
			require.NotContains(t, actionsOf(plan), runtimes.ActionRefuse)
			require.Contains(t, d.mustApply(apiNext), "moved ConfigMap/settings here from service web")
			d.waitWatchedAs("ConfigMap", "settings")

			later := web("v3", config2) // web does not declare it any more
			for _, in := range []runtimes.Request{webNext, later} {
				if row.to == "" && in.FullVersion != "v3" {
					continue // web still declares the object as its own
				}
				plan, err := d.Plan(t.Context(), in)
				require.NoError(t, err)
				require.NotContains(t, namesIn(plan), "settings")
				d.mustApply(in)
				require.Equal(t, []string{"more"}, objectNames(d.observe(in)), "it is neither missing nor an orphan")
			}
			live := d.liveObject("ConfigMap", "settings")
			require.Equal(t, uid, live.GetUID(), "it was not deleted")
			require.Equal(t, "api", live.GetLabels()[LabelService])
			require.NotContains(t, live.GetAnnotations(), AnnotationMovedTo)
			require.Equal(t, map[string]any{"a": "theirs"}, live.Object["data"])
			require.Empty(t, mustPlan(t, d, apiNext))
			require.Len(t, d.observe(apiNext), 2)
			require.NoError(t, d.Remove(t.Context(), later))
			require.NotNil(t, d.liveObject("ConfigMap", "settings"))
		})
	}
}

// An object goes only to the service, application, channel and instance that are named.
func TestAnObjectMovesOnlyAsDeclared_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	d.mustApply(d.instance("v1", configOf("settings", "mine", "converge/moved-to: api")))
	d.waitWatchedAs("ConfigMap", "settings")
	in := d.instance("v1", configOf("settings", "theirs"))
	elsewhere := ofService(in, "api")
	elsewhere.Application = "other-" + d.namespace
	for what, in := range map[string]runtimes.Request{
		"another service":      ofService(in, "billing"),
		"from another service": ofService(d.instance("v1", configOf("settings", "theirs", "converge/moved-from: nobody")), "billing"),
		"another channel":      inChannel(ofService(in, "api"), "beta"),
		"another instance":     withInstanceName(ofService(in, "api"), "eu-3"),
		"another application":  elsewhere,
	} {
		_, err := d.Apply(t.Context(), in)
		require.ErrorContains(t, err, "it belongs to "+d.namespace+"/web in prod", what)
	}
}

// An object that is handed over is not removed by its service, even if that drops it, or is deleted, before the next one has it.
func TestAnObjectThatMovesIsNotRemoved_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	d.mustApply(withPrune(d.instance("v1", configOf("settings", "mine", "converge/moved-to: api"), config2)))
	uid := d.uid("ConfigMap", "settings")
	d.waitWatchedAs("ConfigMap", "settings")
	later := withPrune(d.instance("v2", config2))
	require.Contains(t, d.mustApply(later), "left in place ConfigMap/settings, which is no longer declared (converge/moved-to: api)")
	require.NoError(t, d.Remove(t.Context(), later))
	require.Contains(t, d.mustApply(ofService(d.instance("v1", configOf("settings", "theirs")), "api")), "moved ConfigMap/settings here from service web")
	require.Equal(t, uid, d.uid("ConfigMap", "settings"))
}

// withSiblings is an instance in whose newest incarnation other services declare these objects.
func withSiblings(in runtimes.Request, siblings ...runtimes.Request) runtimes.Request {
	in.Siblings = func(context.Context) (all runtimes.Siblings, err error) {
		for _, s := range siblings {
			all.Payloads = append(all.Payloads, *s.Payload)
		}
		return all, nil
	}
	return in
}

// An object moves without any annotation if the newest incarnation declares it in another service only. The earlier service neither prunes
// nor removes it, and the next one takes it once that service was applied without it, or is removed.
func TestAnObjectMovesByItsDeclarations_D11(t *testing.T) {
	for name, removed := range map[string]bool{"dropped": false, "service removed": true} {
		t.Run(name, func(t *testing.T) {
			d := newTestCluster(t).recording()
			web := func(version string, sequence int64, objects ...string) runtimes.Request {
				return withFence(withPrune(d.instance(version, objects...)), 1, sequence)
			}
			before := web("v1", 1, configOf("settings", "mine"), config2)
			d.mustApply(before)
			uid := d.uid("ConfigMap", "settings")
			d.waitWatchedAs("ConfigMap", "settings")

			later := web("v2", 2, config2)
			api := ofService(d.instance("v1", configOf("settings", "theirs")), "api")
			declared, next := withSiblings(api, later), withSiblings(later, api)
			require.ErrorContains(t, applyError(t, d, withSiblings(api, before)), "it belongs to "+d.namespace+"/web in prod", "web declares it, too")
			early := applyError(t, d, declared)
			require.ErrorContains(t, early, "it belongs to "+d.namespace+"/web in prod, which was not applied without it yet; then it is taken over")
			require.True(t, runtimes.IsUnready(early), "it waits, and no attempt has failed")
			require.Contains(t, messagesOf(mustPlan(t, d, declared)), "moves here from service web")
			require.Contains(t, messagesOf(mustPlan(t, d, next)), "moves to service api")
			if removed {
				before.Siblings, declared = next.Siblings, withSiblings(api)
				plan, err := d.PlanRemoval(t.Context(), before)
				require.NoError(t, err)
				require.Contains(t, messagesOf(plan), "service api declares it, and takes it over")
				require.NoError(t, d.Remove(t.Context(), before))
			} else {
				require.Contains(t, d.mustApply(next), "left in place ConfigMap/settings, which is no longer declared: service api declares it, and takes it over")
			}
			require.Contains(t, d.mustApply(declared), "moved ConfigMap/settings here from service web")
			d.waitWatchedAs("ConfigMap", "settings")
			if !removed {
				d.mustApply(next)
			}
			require.Equal(t, uid, d.uid("ConfigMap", "settings"), "it was not deleted")
			require.Equal(t, "api", d.liveObject("ConfigMap", "settings").GetLabels()[LabelService])
		})
	}
}

// Nothing is pruned or removed while it is not known whether another service declares it.
func TestNothingIsPrunedWithoutKnownSiblings_D11(t *testing.T) {
	d := newTestCluster(t).recording()
	d.mustApply(withPrune(d.instance("v1", configOf("settings", "mine"), config2)))
	d.waitWatchedAs("ConfigMap", "settings")
	later := withPrune(d.instance("v2", config2))
	later.Siblings = func(context.Context) (runtimes.Siblings, error) {
		return runtimes.Siblings{}, errors.New("the store is down")
	}
	require.ErrorContains(t, applyError(t, d, later), "read the other services of "+later.Application+": the store is down")
	require.ErrorContains(t, d.Remove(t.Context(), later), "the store is down")
	require.NotNil(t, d.liveObject("ConfigMap", "settings"))
	later.Siblings = withSiblings(later).Siblings
	require.Contains(t, d.mustApply(later), "pruned ConfigMap/settings")
}

// A renamed service may be named by its first name, which its labels have, and by its current one.
func TestAnObjectMovesBetweenRenamedServices_D11(t *testing.T) {
	for annotations, takes := range map[[2]string]bool{
		{"converge/moved-to: frontend", ""}:   true,
		{"", "converge/moved-from: site"}:     true,
		{"converge/moved-to: somewhere", ""}:  false,
		{"", "converge/moved-from: frontend"}: false,
	} {
		t.Run(annotations[0]+annotations[1], func(t *testing.T) {
			d := newTestCluster(t).recording()
			web := d.instance("v1", configOf("settings", "mine", annotations[0]))
			d.mustApply(web)
			d.waitWatchedAs("ConfigMap", "settings")
			api := ofService(d.instance("v1", configOf("settings", "theirs", annotations[1])), "api")
			api.Siblings = func(context.Context) (runtimes.Siblings, error) {
				return runtimes.Siblings{Payloads: []entities.Payload{*web.Payload}, Names: map[string]string{"api": "frontend", "web": "site"}}, nil
			}
			if !takes {
				require.ErrorContains(t, applyError(t, d, api), "it belongs to "+d.namespace+"/web in prod")
				return
			}
			d.mustApply(api)
			d.waitWatchedAs("ConfigMap", "settings")
			if annotations[0] != "" {
				require.Empty(t, d.observe(web))
			}
		})
	}
}

func applyError(t *testing.T, d *recordingCluster, in runtimes.Request) error {
	t.Helper()
	_, err := d.Apply(t.Context(), in)
	return err
}

const config2 = "{apiVersion: v1, kind: ConfigMap, metadata: {name: more}}"

func mustPlan(t *testing.T, d *recordingCluster, in runtimes.Request) []runtimes.Change {
	t.Helper()
	plan, err := d.Plan(t.Context(), in)
	require.NoError(t, err)
	return plan
}

func namesIn(plan []runtimes.Change) (all []string) {
	for _, c := range plan {
		all = append(all, c.Name)
	}
	return all
}

func objectNames(objects []entities.Object) (all []string) {
	for _, o := range objects {
		all = append(all, strings.TrimSpace(o.Name))
	}
	return all
}
