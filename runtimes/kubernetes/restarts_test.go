package kubernetes

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// aWorkload is a workload of one pod by its kind and name, with more in the spec of its pods.
func aWorkload(kind, name, image, more string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: %s, metadata: {name: %s}, spec: {serviceName: x, selector: {matchLabels: {app: %s}},
		template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: c, image: "%s"%s}]}}}}`, kind, name, name, name, image, more)
}

func aDeployment(name, image, more string) string {
	return strings.Replace(aWorkload("Deployment", name, image, more), "serviceName: x, ", "", 1)
}

func aJob(command string, annotations ...string) string {
	return fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: once, annotations: {%s}}, spec: {backoffLimit: 0, template: {spec: {
		restartPolicy: Never, containers: [{name: c, image: "x", command: ["%s"]}]}}}}`, strings.Join(annotations, ", "), command)
}

func aBudget(unavailable int) string {
	return fmt.Sprintf("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {maxUnavailable: %d, selector: {matchLabels: {app: web}}}}", unavailable)
}

const usesSettings = ", envFrom: [{configMapRef: {name: settings}}]"

// pods are the pods that run, by the workload that they are of.
func (d *desk) pods() map[string][]types.UID {
	d.Helper()
	list, err := d.admin.typed.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{})
	require.NoError(d, err)
	all := map[string][]types.UID{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			all[pod.Labels["app"]] = append(all[pod.Labels["app"]], pod.UID)
		}
	}
	for _, of := range all {
		slices.Sort(of)
	}
	return all
}

func aJobOf(name string) string {
	return strings.Replace(aJob("/bin/true"), "name: once", "name: "+name, 1)
}

// A change of a PodDisruptionBudget and of a ConfigMap replaces the pods that use it, and no others; a Job that has ended is left
// alone, and is at the new version all the same.
func TestAChangeReplacesOnlyWhatItChanges_H1(t *testing.T) {
	d := reach(t).desk()
	at := func(version, image string, unavailable int, setting string) runtimes.Instance {
		return d.instance(version, aDeployment("web", image, ""), aDeployment("uses", "uses:1", usesSettings), aWorkload("StatefulSet", "db", "db:1", ""),
			aJob("/bin/true"), aBudget(unavailable), configOf("settings", setting), configOf("unused", setting))
	}
	v1 := at("v1", "web:1", 1, "a")
	d.applied(v1)
	d.until(v1, "v1", settled("v1"))
	first, job := d.pods(), d.there("Job", "once").GetUID()

	budget := at("v1-i2", "web:1", 2, "a")
	require.Contains(t, d.applied(budget), "configured PodDisruptionBudget/web (2 fields)")
	d.until(budget, "another budget", settled("v1-i2"))
	require.Equal(t, first, d.pods(), "no pods were replaced")

	setting := at("v1-i3", "web:1", 2, "b")
	require.Contains(t, d.applied(setting), "configured Deployment/uses (its pods are replaced: their configuration changes)")
	d.until(setting, "another setting", settled("v1-i3"))
	second := d.pods()
	require.NotEqual(t, first["uses"], second["uses"])
	second["uses"] = first["uses"]
	require.Equal(t, first, second)

	image := at("v2", "web:2", 2, "b")
	d.applied(image)
	d.until(image, "another image", settled("v2"))
	third := d.pods()
	require.NotEqual(t, first["web"], third["web"])
	require.Equal(t, first["db"], third["db"])
	require.Equal(t, job, d.there("Job", "once").GetUID())
	d.wrote()
	require.Equal(t, []string{"unchanged 7 objects"}, d.applied(image))
	require.Contains(t, d.refused(d.instance("v3", aJob("/bin/echo")), true), "field is immutable")
}

// A version that leaves the pods alone goes back to what it left, and so does the version before one that failed: pods that
// run are kept, and are of the version that is asked for.
func TestRollbackKeepsThePodsOfTheSameTemplate_H1(t *testing.T) {
	d := reach(t).desk()
	at := func(version, image string, unavailable int) runtimes.Instance {
		return d.instance(version, aDeployment("web", image, ""), aWorkload("StatefulSet", "db", "db:1", ""), aBudget(unavailable))
	}
	d.applied(at("v1", "web:1", 1))
	d.until(at("v1", "web:1", 1), "v1", settled("v1"))
	first := d.pods()
	for _, in := range []runtimes.Instance{at("v2", "web:1", 2), at("v1", "web:1", 1), at("v2", "web:1", 2)} {
		d.applied(in)
		d.until(in, in.FullVersion, settled(in.FullVersion))
		require.Equal(t, first, d.pods())
	}

	broken := at("v3", "web:nopull", 2)
	d.applied(broken)
	d.until(broken, "both versions", func(objects []entities.Object) bool {
		return slices.Equal(activeOf(objects, "Deployment", "web"), []string{"v3", "v2"}) && slices.Equal(activeOf(objects, "StatefulSet", "db"), []string{"v3"})
	})
	back := at("v2", "web:1", 2)
	d.applied(back)
	d.until(back, "v2 again", settled("v2"))
	d.wait("the pods of v3 to go", func() bool { return maps.EqualFunc(first, d.pods(), slices.Equal) }, func() any { return d.pods() })
}

// The pods of a StatefulSet that are not replaced yet are of the version that they were last, not of that which made them.
func TestOldPodsAreOfTheVersionBefore_H1(t *testing.T) {
	d := reach(t).desk()
	at := func(version, image string, unavailable int) runtimes.Instance {
		return d.instance(version, strings.Replace(aWorkload("StatefulSet", "db", image, ""), "spec: {", "spec: {updateStrategy: {type: OnDelete}, ", 1), aBudget(unavailable))
	}
	for _, in := range []runtimes.Instance{at("v1", "db:1", 1), at("v2", "db:1", 2)} {
		d.applied(in)
		d.until(in, in.FullVersion, func(objects []entities.Object) bool { // one that is updated by hand is well without pods
			return settled(in.FullVersion)(objects) && objects[1].Versions[0].AvailableReplicas == 1
		})
	}
	v3 := at("v3", "db:2", 2)
	d.applied(v3)
	d.until(v3, "the old pod", func(objects []entities.Object) bool {
		return slices.Equal(activeOf(objects, "StatefulSet", "db"), []string{"v2"})
	})
	v4 := at("v4", "db:3", 2)
	d.applied(v4)
	d.until(v4, "the old pod, later", func(objects []entities.Object) bool {
		return slices.Equal(activeOf(objects, "StatefulSet", "db"), []string{"v2"})
	})
}

func activeOf(objects []entities.Object, kind, name string) (all []string) {
	for _, o := range objects {
		for _, v := range o.Versions {
			if o.Type == kind && o.Name == name && v.Active {
				all = append(all, v.Version)
			}
		}
	}
	return all
}

// A change of configuration that was cut off before the pods that use it were reached is finished.
func TestAChangeOfConfigurationIsFinished_H1_A11(t *testing.T) {
	d := reach(t).desk()
	at := func(version, setting string) runtimes.Instance {
		return d.instance(version, aDeployment("uses", "uses:1", usesSettings), configOf("settings", setting))
	}
	d.applied(at("v1", "a"))
	d.until(at("v1", "a"), "v1", settled("v1"))
	first := d.pods()
	d.failing(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if isWrite(req) && strings.HasSuffix(req.URL.Path, "/uses") {
			return nil, errCut
		}
		return send()
	})
	d.refused(at("v2", "b"), false)
	d.failing(nil)
	require.Equal(t, first, d.pods())
	d.applied(at("v2", "b"))
	d.until(at("v2", "b"), "v2", settled("v2"))
	require.NotEqual(t, first, d.pods())
}

// What a change of one ConfigMap costs in a service of a hundred objects.
func TestWhatAChangeOfOneConfigMapCosts_H1(t *testing.T) {
	d := reach(t).desk()
	const each = 20 // of five kinds
	at := func(version, setting string) runtimes.Instance {
		objects := []string{aDeployment("uses", "uses:1", usesSettings), configOf("settings", setting)}
		for n := range each {
			name := fmt.Sprintf("other-%d", n)
			objects = append(objects, configOf(name, "x"), aJobOf(name),
				"{apiVersion: v1, kind: Service, metadata: {name: "+name+"}, spec: {ports: [{port: 80}]}}",
				"{apiVersion: v1, kind: ServiceAccount, metadata: {name: "+name+"}}")
			if n > 1 {
				objects = append(objects, aDeployment(name, "x:1", ""))
			}
		}
		return d.instance(version, objects...)
	}
	v1 := at("v1", "a")
	d.applied(v1)
	d.until(v1, "v1", settled("v1"))
	first := d.pods()
	d.wrote()
	v2 := at("v1-i2", "b")
	d.applied(v2)
	writes, asked := d.wrote()
	d.until(v2, "v1-i2", settled("v1-i2"))
	second, replaced := d.pods(), 0
	delete(first, "") // of Jobs
	for name := range second {
		if name != "" && !slices.Equal(first[name], second[name]) {
			replaced++
		}
	}
	objects := len(v1.Payload.Kubernetes.Objects)
	t.Logf("%d objects, %d workloads: %d requests, %d of them writes, %d of the workloads restarted", objects, len(first), asked, len(writes), replaced)
	require.Equal(t, 1, replaced)
	require.Len(t, writes, objects, "each gets its version")
	require.Less(t, asked, 3*objects)
}
