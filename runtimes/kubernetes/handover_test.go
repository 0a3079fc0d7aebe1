package kubernetes

import (
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
