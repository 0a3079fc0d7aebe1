// Package render makes objects of Helm charts and kustomizations, in a process of its own: intent/sources orders, and reads what
// was made. It has the engines of Helm and Kustomize, and with them most of Kubernetes' API types, which only the
// programs have that render: converge-render, beside converge, and converge-dev, which starts itself.
//
// It reads no file, runs nothing and asks no network. It may import intent/sources.
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

// Run is the first thing that the main function calls of a program that renders by itself: where the program was started to
// render, it does that and never returns; else everything is rendered by this very program, started once more.
func Run() {
	Serve()
	sources.RenderApart(self, sources.MaxTime)
}

// Serve renders, and never returns, where the program was started to.
func Serve() {
	if os.Args[0] == sources.RendererName && len(os.Args) == 2 {
		limit, _ := time.ParseDuration(os.Args[1])
		serve(limit)
		os.Exit(0)
	}
}

// Here has everything rendered in this process, unbounded. It is for tests.
func Here() { sources.RenderHere(perform) }

func self() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil // this very program, whatever its file has become
	}
	return os.Executable()
}

// perform carries out an order.
func perform(data []byte) (a sources.Answer) {
	var o sources.Order
	err := json.Unmarshal(data, &o)
	switch {
	case err != nil:
	case o.Kustomization != "":
		var text []byte
		text, err = build(o.Files, o.Kustomization)
		a.Texts = []sources.Text{{Data: text}}
	case o.Release == nil:
		err = files(o.Chart).usable()
	default:
		a.Texts, err = files(o.Chart).render(*o.Release)
	}
	if err != nil && !errors.As(err, &a.Refusal) {
		a.Error = err.Error()
	}
	return a
}

// serve carries out one order after the other until there are no more.
func serve(limit time.Duration) {
	answers := json.NewEncoder(os.Stdout)
	orders := json.NewDecoder(os.Stdin)
	os.Stdout = os.Stderr // which leads nowhere: a library that prints says nothing to anybody
	os.Clearenv()
	http.DefaultTransport = noNetwork{}
	debug.SetMemoryLimit(sources.MaxMemory / 4 * 3)
	go boundMemory()
	for {
		var o json.RawMessage
		if orders.Decode(&o) != nil {
			return
		}
		late := time.AfterFunc(limit, func() { os.Exit(sources.ExitTime) })
		a := perform(o)
		late.Stop()
		if answers.Encode(a) != nil {
			return
		}
	}
}

// boundMemory ends the process when it holds too much.
func boundMemory() {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(2 * time.Millisecond) {
		metrics.Read(samples)
		if samples[0].Value.Uint64()-samples[1].Value.Uint64() > sources.MaxMemory {
			os.Exit(sources.ExitMemory)
		}
	}
}

// noNetwork is what every client of the process asks that brings no transport of its own.
type noNetwork struct{}

func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nothing is fetched when compiling")
}
