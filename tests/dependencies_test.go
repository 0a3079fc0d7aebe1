package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// oneChannel is an application with a channel, and a service in it that may wait for others.
func oneChannel(service, more string) string {
	return `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: staging, runtimes: [{name: APP-rt}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
---
` + fmt.Sprintf("{apiVersion: converge/v1, kind: Service, name: %s%s}\n", service, more)
}

func dependsOn(service, rule string) string {
	return fmt.Sprintf(", dependencies: [{service: %s, rule: %s}]", service, rule)
}

// waitsFor waits until a release of a service waits for something, in these words.
func waitsFor(w *stage.World, service, words string) {
	w.T.Helper()
	w.AwaitThat(service, words, func(s protocol.Status) bool {
		for _, c := range s.Channels {
			for _, k := range c.Conditions {
				if k.Verdict != "PASS" && strings.Contains(k.ID+": "+k.Reason, words) {
					return true
				}
			}
		}
		return false
	})
}

// A service waits for one of another application, says so while there is none, and finds it under another name.
func TestDependencyOnAnotherApplication_D22_A13(t *testing.T) {
	t.Parallel()
	shop, orders := shared.World(t), shared.World(t)
	t.Cleanup(func() { shop.Retire("web"); orders.Retire("api") })
	shop.Write(oneChannel("web", dependsOn(orders.App+"/api", "versionOrder")))
	shop.Publish()
	shop.Release("web", "v1")
	waitsFor(shop, "web", "version-order/"+orders.App+"/api: application "+orders.App+" does not exist; expected one with the service api")

	orders.Write(oneChannel("db", ""))
	orders.Publish()
	t.Cleanup(func() { orders.Retire("db") })
	waitsFor(shop, "web", "application "+orders.App+" has no started service api")

	orders.Write(oneChannel("api", ""))
	orders.Publish()
	waitsFor(shop, "web", "the version of "+orders.App+"/api in staging is not known yet; expected at least v1")
	orders.Release("api", "v1")
	orders.Await("api", "staging CONVERGED v1")
	shop.Await("web", "staging CONVERGED v1")

	orders.Write(oneChannel("gateway", ", renamedFrom: api"))
	orders.Publish()
	shop.Write(oneChannel("web", dependsOn(orders.App+"/gateway", "versionOrder")))
	shop.Publish()
	shop.Release("web", "v2")
	waitsFor(shop, "web", orders.App+"/gateway in staging has v1; expected at least v2")
	orders.Release("api", "v2")
	shop.Await("web", "staging CONVERGED v2")
}

// Two applications that wait for each other are a deadlock, which both say; a bypass ends it.
func TestDeadlockOfTwoApplications_D21(t *testing.T) {
	t.Parallel()
	shop, orders := shared.World(t), shared.World(t)
	t.Cleanup(func() { shop.Retire("web"); orders.Retire("api") })
	shop.Write(oneChannel("web", dependsOn(orders.App+"/api", "stable")))
	orders.Write(oneChannel("api", dependsOn(shop.App+"/web", "stable")))
	shop.Publish()
	orders.Publish()
	shop.Release("web", "v1")
	orders.Release("api", "v1")
	waitsFor(shop, "web", fmt.Sprintf("deadlock: web in staging waits for %s/api, which waits for web", orders.App))
	waitsFor(orders, "api", fmt.Sprintf("deadlock: api in staging waits for %s/web, which waits for api", shop.App))
	shop.Act("web", protocol.Bypass, fmt.Sprintf(`{"by":"bob","version":"v1","channel":"staging","condition":"service-stable/%s/api","reason":"the first"}`, orders.App))
	shop.Await("web", "staging CONVERGED v1")
	orders.Await("api", "staging CONVERGED v1")
}

// A precondition of a channel may name a service of another application too, and holds for all services of the channel.
func TestPreconditionOnAnotherApplication_D22_A13(t *testing.T) {
	t.Parallel()
	shop, orders := shared.World(t), shared.World(t)
	t.Cleanup(func() { shop.Retire("web"); orders.Retire("api") })
	shop.Write(strings.Replace(oneChannel("web", ""), "name: staging", "name: staging, preconditions: [{serviceStable: {service: "+orders.App+"/api}}]", 1))
	shop.Publish()
	shop.Release("web", "v1")
	waitsFor(shop, "web", "service-stable/"+orders.App+"/api: application "+orders.App+" does not exist")
	orders.Write(oneChannel("api", ""))
	orders.Publish()
	orders.Release("api", "v1")
	shop.Await("web", "staging CONVERGED v1")
}
