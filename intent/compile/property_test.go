package compile_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// application draws a whole configuration, one document per item.
func application(t *rapid.T) []string {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	text := rapid.StringMatching(`[a-z0-9 .:{}$]{0,8}`)
	channels := rapid.IntRange(1, 5).Draw(t, "channels")
	var b strings.Builder
	b.WriteString("{apiVersion: converge/v1, kind: Application, name: shop, releaseChannels: [")
	for i := range channels {
		fmt.Fprintf(&b, "{name: c%d, runtimes: [{name: r1}, {name: r2, namespace: \"${{ channel }}\"}], labels: {tier: %s}, constants: {k: %q}, preconditions: [", i, name.Draw(t, "tier"), text.Draw(t, "constant"))
		for j := range i {
			if rapid.Bool().Draw(t, "edge") {
				fmt.Fprintf(&b, "{releaseChannelStable: {releaseChannel: c%d}},", j)
			}
		}
		b.WriteString("]},")
	}
	docs := []string{
		b.String() + "]}",
		"{apiVersion: converge/v1, kind: Runtime, name: r1, fake: {}}",
		"{apiVersion: converge/v1, kind: Runtime, name: r2, custom: {apply: {command: [x]}}}",
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "services") {
		docs = append(docs, fmt.Sprintf(`{apiVersion: converge/v1, kind: Service, name: s%d, runtime: %s,
parameters: [{name: p, type: string, default: %q}, {name: q, type: int}, {name: r, type: string, default: "${{ params.p }}-${{ version }}"}],
custom: {env: {A: "${{ params.r }}${{ constants.k }}", B: "${{ params.q }}", C: %q, D: {workerEnv: X}}},
perReleaseChannel: [{releaseChannel: c0, parameters: {p: %q}}, {releaseChannel: c%d, custom: {env: {E: "${{ labels.tier }}"}}}]}`,
			i, rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "runtime"), text.Draw(t, "default"), text.Draw(t, "env"), text.Draw(t, "override"),
			rapid.IntRange(0, channels-1).Draw(t, "channel")))
	}
	return docs
}

// spread puts documents into files in some order.
func spread(docs []string, seed uint64) fstest.MapFS {
	random := rand.New(rand.NewPCG(seed, 1))
	docs = slices.Clone(docs)
	random.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	files := fstest.MapFS{}
	for _, doc := range docs {
		name := fmt.Sprintf("d%d/%d.converge.yaml", random.IntN(2), random.IntN(3))
		if files[name] == nil {
			files[name] = &fstest.MapFile{}
		}
		files[name].Data = append(files[name].Data, []byte(doc+"\n---\n")...)
	}
	return files
}

// The same documents give the same incarnation, specs and payloads however they are spread over
// files, and channels come after those that they wait for.
func TestCompilingIsDeterministic_D4(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		docs := application(t)
		compile := func(seed uint64) *compile.Compiled {
			config, err := compile.LoadFS(spread(docs, seed), "/config", config.Options{AllowFake: true})
			if err != nil {
				t.Skip(err) // text that means to be a substitution
			}
			compiled, err := compile.Compile(config)
			require.NoError(t, err)
			return compiled
		}
		first, second := compile(rapid.Uint64().Draw(t, "one")), compile(rapid.Uint64().Draw(t, "other"))
		require.Equal(t, string(first.Incarnation.Bytes()), string(second.Incarnation.Bytes()))
		require.Equal(t, first.Incarnation.Hash(), second.Incarnation.Hash())

		in := incarnation.RenderInput{Version: "v1", Parameters: map[string]any{"q": 1}}
		for _, service := range first.Incarnation.Services() {
			one, err := incarnation.Render(first.Incarnation, service, in)
			require.NoError(t, err)
			other, err := incarnation.Render(second.Incarnation, service, in)
			require.NoError(t, err)
			require.Equal(t, one, other)
		}
		seen := map[string]bool{}
		for _, channel := range written(t, first).Channels {
			for _, name := range incarnation.Upstream(channel) {
				require.True(t, seen[name], "%s before %s", channel.Name, name)
			}
			seen[channel.Name] = true
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	var text strings.Builder
	text.WriteString(intenttest.One("") + "---\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "{apiVersion: converge/v1, kind: Service, name: s%d, parameters: [{name: p, type: string, default: \"a:${{ version }}\"}], custom: {env: {A: \"${{ params.p }}\", B: \"${{ constants.zone }}\"}}}\n---\n", i)
	}
	for b.Loop() {
		files := fstest.MapFS{}
		for i, part := range slices.Collect(slices.Chunk(strings.SplitAfter(text.String(), "---\n"), 1000)) {
			files[fmt.Sprintf("%d.converge.yaml", i)] = &fstest.MapFile{Data: []byte(strings.Join(part, ""))}
		}
		config, err := compile.LoadFS(files, "/config", config.Options{})
		require.NoError(b, err)
		compiled, err := compile.Compile(config)
		require.NoError(b, err)
		_, err = compiled.Specs()
		require.NoError(b, err)
	}
}
