//go:build unix

package custom

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// noticing is a runtime whose watch prints the lines that are written into a named pipe, and the resulting hints.
func noticing(t *testing.T, script string, observed ...runtimes.Owner) (dir string, hints chan runtimes.Owner) {
	t.Helper()
	dir, hints = t.TempDir(), make(chan runtimes.Owner, 100)
	watch := sh(script)
	rt := newRuntime(t, dir, entities.CustomRuntime{Apply: sh("true"), Fetch: new(sh(`echo '{"objects": []}'`)), Mode: entities.FetchStructured, Watch: &watch})
	for _, owner := range observed {
		_, err := rt.Observe(t.Context(), runtimes.Request{Owner: owner})
		require.NoError(t, err)
	}
	t.Cleanup(rt.Watch(func(o runtimes.Owner) { hints <- o }))
	return dir, hints
}

func owner(application, service, channel, instance string) runtimes.Owner {
	return runtimes.Owner{Application: application, Service: service, ID: entities.InstanceID{Channel: channel, Name: instance}}
}

// received are the next hints, so many.
func received(t *testing.T, hints chan runtimes.Owner, n int) (got []runtimes.Owner) {
	t.Helper()
	for range n {
		select {
		case o := <-hints:
			got = append(got, o)
		case <-time.After(time.Minute):
			require.Fail(t, "no hint", "got %v", got)
		}
	}
	return got
}

// Each line of a watch says where something may have changed; other instances get no hint.
func TestWatchCommand(t *testing.T) {
	prod, staging := owner("shop", "web", "prod", "main"), owner("shop", "web", "staging", "main")
	eu, other, api := owner("shop", "web", "prod", "eu"), owner("blog", "web", "prod", "main"), owner("shop", "api", "prod", "main")
	all := []runtimes.Owner{prod, staging, eu, other, api}
	lines := make(chan string)
	dir, hints := noticing(t, `mkfifo lines; echo ready; while :; do cat lines; done`, all...)
	pipe := filepath.Join(dir, "lines")
	require.Eventually(t, func() bool { _, err := os.Stat(pipe); return err == nil }, time.Minute, time.Millisecond)
	go func() {
		for line := range lines {
			_ = os.WriteFile(pipe, []byte(line), 0)
		}
	}()
	defer close(lines)
	for _, row := range []struct {
		line  string
		meant []runtimes.Owner
	}{
		{"api\n", []runtimes.Owner{api}},
		{"web staging\n", []runtimes.Owner{staging}},
		{"shop/web prod eu and whatever else\n", []runtimes.Owner{eu}},
		{"shop/web prod\n", []runtimes.Owner{prod, eu}},
		{"web\nweb prod eu\n", []runtimes.Owner{prod, staging, eu, eu, other}},
		{"unknown\nweb nowhere\n\n", all},
		{string(make([]byte, 5000)) + "\n", all},
	} {
		lines <- row.line
		require.ElementsMatch(t, row.meant, received(t, hints, len(row.meant)), row.line[:min(len(row.line), 20)])
	}
	require.Empty(t, hints)
}

// A watch that ends is restarted, and changes in the meantime are found. When the watch is stopped, its process is ended.
func TestEndedWatchIsRestarted(t *testing.T) {
	prod := owner("shop", "web", "prod", "main")
	watch := sh(`echo x >>runs; [ "$(wc -l <runs)" -gt 1 ] && exec tail -f /dev/null; exit 1`)
	dir := t.TempDir()
	rt := newRuntime(t, dir, entities.CustomRuntime{Apply: sh("true"), Fetch: new(sh(`echo '{"objects": []}'`)), Mode: entities.FetchStructured, Watch: &watch})
	_, err := rt.Observe(t.Context(), runtimes.Request{Owner: prod})
	require.NoError(t, err)
	hints := make(chan runtimes.Owner, 100)
	stop := rt.Watch(func(o runtimes.Owner) { hints <- o })
	require.Equal(t, []runtimes.Owner{prod}, received(t, hints, 1))
	require.Eventually(t, func() bool {
		runs, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return string(runs) == "x\nx\n"
	}, time.Minute, time.Millisecond)
	stop() // returns when the process, which would run forever, has ended

	require.Nil(t, newRuntime(t, dir, applying("true")).Watch(func(runtimes.Owner) {}), "no watch without the command")
}

// A definition that is no longer used, since a newer one is published, has no process; once it is used again it has one.
func TestUnusedWatchEnds(t *testing.T) {
	dir := t.TempDir()
	watch := sh(`echo x >>runs; trap 'echo gone >>runs; exit' TERM; while :; do sleep 0.01; done`)
	rt := newRuntime(t, dir, entities.CustomRuntime{Apply: sh("true"), Fetch: new(sh(`echo '{"objects": []}'`)), Mode: entities.FetchStructured, Watch: &watch})
	rt.watchIdleTimeout = 200 * time.Millisecond
	runs := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, "runs"))
			return string(text) == want
		}, time.Minute, time.Millisecond, want)
	}
	observe := func() {
		_, err := rt.Observe(t.Context(), runtimes.Request{Owner: owner("shop", "web", "prod", "main")})
		require.NoError(t, err)
	}
	t.Cleanup(rt.Watch(func(runtimes.Owner) {}))
	observe()
	runs("x\ngone\n")
	observe()
	runs("x\ngone\nx\ngone\n")
}
