// Package render renders Helm charts and kustomizations to objects, and executes templates of ApplicationSets, in a separate process. intent/sources sends the orders and parses the
// results. The package contains the engines of Helm and Kustomize, and with them most of Kubernetes' API types. Only programs that
// render contain it: converge-render, which is installed with converge, and converge-dev, which starts itself.
//
// It reads no file, runs no program and uses no network. It may import intent/sources.
package render

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/converge-engine/converge/intent/sources"
)

// Run must be the first call in the main function of a program that renders. If the program was started as a renderer, Run renders and
// never returns. Otherwise it configures rendering by a child process of the same program.
func Run() {
	Serve()
	sources.RenderInSubprocess(self, sources.MaxTime)
}

// Serve renders and never returns, if the program was started as a renderer.
func Serve() {
	if os.Args[0] == sources.RendererName && len(os.Args) == 2 {
		limit, _ := time.ParseDuration(os.Args[1])
		serve(limit)
		os.Exit(0)
	}
}

// InProcess configures rendering in this process, without limits. It is for tests.
func InProcess() { sources.RenderInProcess(execute) }

func self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil // the running program, even if its file was replaced
	}
	return os.Executable()
}

// execute executes an order.
func execute(data []byte) (a sources.Answer) {
	var o sources.Order
	err := json.Unmarshal(data, &o)
	switch {
	case err != nil:
	case o.Template != nil:
		var text string
		text, err = executeTemplate(*o.Template)
		a.Texts = []sources.Text{{Data: []byte(text)}}
	case o.Kustomization != "":
		var text []byte
		text, err = build(o.Files, o.Kustomization)
		a.Texts = []sources.Text{{Data: text}}
	case o.Release == nil:
		err = files(o.Chart).checkLoads()
	default:
		a.Texts, err = files(o.Chart).render(*o.Release)
	}
	if err != nil && !errors.As(err, &a.Refusal) {
		a.Error = err.Error()
	}
	return a
}

// serve executes orders one after the other until the input ends.
func serve(limit time.Duration) {
	answers := json.NewEncoder(os.Stdout)
	orders := json.NewDecoder(os.Stdin)
	os.Stdout = os.Stderr // which is discarded, because a library may print
	os.Clearenv()
	http.DefaultTransport = noNetwork{}
	debug.SetGCPercent(400) // most of the memory is garbage of one rendering, and the limit bounds it
	debug.SetMemoryLimit(sources.MaxMemory / 4 * 3)
	go boundMemory()
	for {
		var o json.RawMessage
		if orders.Decode(&o) != nil {
			return
		}
		timer := time.AfterFunc(limit, func() { os.Exit(sources.ExitTime) })
		a := execute(o)
		timer.Stop()
		if answers.Encode(a) != nil {
			return
		}
	}
}

// boundMemory ends the process when it uses too much memory.
func boundMemory() {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(2 * time.Millisecond) {
		metrics.Read(samples)
		if samples[0].Value.Uint64()-samples[1].Value.Uint64() > sources.MaxMemory {
			os.Exit(sources.ExitMemory)
		}
	}
}

// noNetwork is the default transport of all HTTP clients in the process.
type noNetwork struct{}

func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("compiling does not fetch anything")
}
