package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

const fleet = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- name: staging
  runtimes: [{name: lab}]
- name: prod
  runtimes: [{selector: {tier: prod}, namespace: "shop-${{ runtime.labels.zone }}"}]
---
{apiVersion: converge/v1, kind: Runtime, name: lab, labels: {zone: x}, custom: {apply: {command: [./lab]}}}
---
apiVersion: converge/v1
kind: Service
name: web
custom: {env: {PLACE: "${{ runtime }} in ${{ runtime.labels.zone }}", VERSION: "${{ version }}"}}
`

// runtimeOf is the document of a runtime of the fleet.
func runtimeOf(name, tier, zone string) string {
	return fmt.Sprintf("---\n{apiVersion: converge/v1, kind: Runtime, name: %s, labels: {tier: %s, zone: %s}, custom: {apply: {command: [./%s]}}}\n", name, tier, zone, name)
}

func instances(t *testing.T, compiled *compile.Compiled) (names []string) {
	specs, err := compiled.Specs()
	require.NoError(t, err)
	for _, id := range func() []entities.InstanceID { s := specs["web"]; return s.IDs() }() {
		names = append(names, id.String())
	}
	return names
}

// A channel with a selector has an instance on each runtime that it matches, by name, with a payload of its own.
func TestFleet_D4(t *testing.T) {
	compiled := intenttest.Text(t, fleet+runtimeOf("us-1", "prod", "b")+runtimeOf("eu-2", "prod", "a")+runtimeOf("eu-9", "test", "a")+runtimeOf("eu-1", "prod", "a"))
	require.Equal(t, []string{"staging", "prod/eu-1", "prod/eu-2", "prod/us-1"}, instances(t, compiled))
	payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1"})
	require.NoError(t, err)
	got := map[string]string{}
	for id, p := range payloads {
		got[id] = p.Runtime + ": " + p.Custom.Env["PLACE"].Literal + ", namespace " + p.Address[entities.AddressNamespace]
	}
	require.Equal(t, map[string]string{
		"staging":   "lab: lab in x, namespace ",
		"prod/eu-1": "eu-1: eu-1 in a, namespace shop-a",
		"prod/eu-2": "eu-2: eu-2 in a, namespace shop-a",
		"prod/us-1": "us-1: us-1 in b, namespace shop-b",
	}, got)
	only, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1", Instances: []string{"prod/eu-2"}})
	require.NoError(t, err)
	require.Len(t, only, 1)

	grown := intenttest.Text(t, fleet+runtimeOf("us-1", "prod", "c")+runtimeOf("eu-1", "prod", "a")+runtimeOf("eu-3", "prod", "a"))
	before, err := compiled.Specs()
	require.NoError(t, err)
	after, err := grown.Specs()
	require.NoError(t, err)
	at := func(specs map[string]entities.Spec, id entities.InstanceID) string {
		s := specs["web"]
		i, _ := s.Instance(id)
		return i.Template
	}
	for _, name := range []string{"eu-1", "us-1"} {
		id := entities.InstanceID{Channel: "prod", Name: name}
		require.Equal(t, name == "eu-1", at(before, id) == at(after, id), "%s: other runtimes do not change the payload", name)
	}
	d, err := incarnation.Diff(compiled.Incarnation, grown.Incarnation)
	require.NoError(t, err)
	require.Equal(t, `web changed
  prod changed
    payload
      - instances.eu-2  on eu-2
      - instances.eu-2.env.PLACE  "eu-2 in a"
      - instances.eu-2.namespace  shop-a
      + instances.eu-3  on eu-3
      + instances.eu-3.env.PLACE  "eu-3 in a"
      + instances.eu-3.namespace  shop-a
      ~ instances.us-1.env.PLACE  "us-1 in b" → "us-1 in c"
      ~ instances.us-1.namespace  shop-b → shop-c
`, d.String())
}

// A label on somebody's runtime attracts nothing: a fleet has runtimes of its own application, as they are declared now, and of those
// that the installation names, where these allow it.
func TestLabelsOfOtherApplicationsSelectNothing_G8(t *testing.T) {
	labels := map[string]string{"tier": "prod", "zone": "z"}
	known := []entities.RuntimeDefinition{
		{Name: "closed", Kind: entities.RuntimeCustom, Owner: "platform", Labels: labels, Allow: &entities.RuntimeAllow{Applications: []string{"bank"}}},
		{Name: "gone", Kind: entities.RuntimeCustom, Owner: "shop", Labels: labels},
		{Name: "mallory", Kind: entities.RuntimeCustom, Owner: "mallory", Labels: labels, Allow: &entities.RuntimeAllow{Applications: []string{"shop"}}},
		{Name: "shared", Kind: entities.RuntimeCustom, Owner: "platform", Labels: labels, Allow: &entities.RuntimeAllow{Env: []string{"PLACE", "VERSION"}}},
	}
	load := func(text string, of ...string) (*compile.Loaded, error) {
		return compile.LoadFS(fstest.MapFS{"converge.yaml": {Data: []byte(text)}}, "/config", config.Options{Runtimes: known, RuntimesOf: of})
	}
	_, err := load(fleet)
	require.ErrorContains(t, err, `no runtime that this application may use has the labels tier=prod; expected zone=x [unknown-runtime]`)
	for _, row := range []struct{ of, want []string }{
		{nil, []string{"staging", "prod/eu-1"}},
		{[]string{"platform"}, []string{"staging", "prod/eu-1", "prod/shared"}},
		{[]string{"platform", "shop"}, []string{"staging", "prod/eu-1", "prod/shared"}},
	} {
		loaded, err := load(fleet+runtimeOf("eu-1", "prod", "a"), row.of...)
		require.NoError(t, err)
		compiled, err := compile.Compile(loaded)
		require.NoError(t, err)
		require.Equal(t, row.want, instances(t, compiled), "runtimes of %v", row.of)
	}
}

// What runs on a runtime stays the same instance when its channel becomes a fleet, and when it is none any more.
func TestInstancesKeepTheirIdentityWhenAChannelBecomesAFleet_A24(t *testing.T) {
	clusters := runtimeOf("eu-1", "prod", "a") + runtimeOf("eu-2", "prod", "a")
	selector := `{selector: {tier: prod}, namespace: "shop-${{ runtime.labels.zone }}"}`
	follow := func(before, now *compile.Compiled) *compile.Compiled {
		require.NoError(t, now.InheritIdentities(before.Incarnation, nil))
		return now
	}
	on := func(runtimes string) *compile.Compiled {
		return intenttest.Text(t, strings.Replace(fleet+clusters, selector, runtimes, 1))
	}
	one := on("{name: eu-2, namespace: shop-a}")
	two := follow(one, on(selector))
	require.Equal(t, []string{"staging", "prod/eu-1", "prod"}, instances(t, two))
	require.Empty(t, incarnation.UndeclaredMoves(one.Incarnation, two.Incarnation))
	again := follow(two, on(selector))
	require.Equal(t, two.Incarnation.Hash(), again.Incarnation.Hash())
	require.Equal(t, []string{"staging", "prod"}, instances(t, follow(again, on("{name: eu-2}"))))
	other := follow(again, on("{name: eu-1}"))
	require.Equal(t, []string{"staging", "prod/eu-1"}, instances(t, other))
	require.Equal(t, []string{"staging", "prod/eu-1"}, instances(t, follow(other, on("{name: eu-2, movedFrom: {runtime: eu-1}}"))))
	moved := follow(other, on("{name: eu-2, movedFrom: {runtime: eu-1}}"))
	require.ErrorContains(t, on(selector).InheritIdentities(moved.Incarnation, nil), "service web in release channel prod: the instances on runtimes eu-1 and eu-2 would both be prod/eu-1")
}

// Fleets are bounded, and the rules of the widest fit into what a workflow is told.
func TestWidestFleet_F8(t *testing.T) {
	wide := func(n int) string {
		var b strings.Builder
		b.WriteString(fleet)
		for i := range n {
			b.WriteString(runtimeOf(fmt.Sprintf("cluster-%03d", i), "prod", fmt.Sprintf("zone-%d", i%3)))
		}
		return b.String()
	}
	specs, err := intenttest.Text(t, wide(499)).Specs()
	require.NoError(t, err)
	packed, err := protocol.Pack(specs["web"])
	require.NoError(t, err)
	require.LessOrEqual(t, len(packed), incarnation.MaxSpec)
	t.Logf("%d bytes", len(packed))
	_, err = intenttest.Load(wide(500))
	require.ErrorContains(t, err, "service web has 501 instances in its release channels; expected at most 500: fewer runtimes in its fleets [too-many-instances]")
}
