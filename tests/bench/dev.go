package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/converge-engine/converge/tests/bench/report"
)

// devFolder is the runtime of the services of converge dev: a version is a line in a file. What its commands take is their own.
const devFolder = `#!/bin/sh
at=at/$PVN_SERVICE
case $1 in
apply) mkdir -p at && echo "$PVN_SERVICE_VERSION" > "$at" ;;
fetch) [ -e "$at" ] || { echo '{"objects":[]}'; exit; }
	printf '{"objects":[{"name":"line","objectType":"file","status":"SUCCEEDED","versions":[{"version":"%s","active":true}]}]}' "$(cat "$at")" ;;
esac
`

// measureDev runs converge dev with one service and with many, and counts what it takes while nothing happens.
func measureDev(ctx context.Context, b *bench) error {
	fmt.Fprint(b.log, "building ... ")
	bin, err := buildAll(ctx, b.dir)
	if err != nil {
		return err
	}
	var rested [2]time.Duration
	var memory int64
	for i, n := range []int{1, manyShown} {
		a := application{name: "dev", channels: 1, services: serviceNames(n), version: "v1"}
		now, err := restOfDev(ctx, b, filepath.Join(bin, "converge-dev"), a)
		if err != nil {
			return fmt.Errorf("%d services: %w", n, err)
		}
		rested[i], memory = now.CPU, now.Memory
	}
	one := report.Of(part(rested[0], b.rest), report.Cores)
	b.Add(report.Line{
		Row: b.row, What: fmt.Sprintf("converge dev at rest, %d services, CPU", manyShown), Measured: report.Of(part(rested[1], b.rest), report.Cores),
		Spread: "without that of the commands that read them", Reference: &one, Against: "one service",
	})
	b.Note(b.row, "with %d services it is %s large", manyShown, report.Of(float64(memory), report.Bytes))
	return nil
}

// restOfDev is what converge dev takes of the window for which all its services rest.
func restOfDev(ctx context.Context, b *bench, program string, a application) (rested usage, err error) {
	dir := filepath.Join(b.dir, fmt.Sprint("dev", len(a.services)))
	if err := writeDev(dir, a); err != nil {
		return rested, err
	}
	ports, err := freePorts(ctx)
	if err != nil {
		return rested, err
	}
	process := exec.CommandContext(ctx, program, dir, "--port", ports[0], "--ui-port", ports[1], "--api-port", "0")
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = stopWithin
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		return rested, err
	}
	if err := process.Start(); err != nil {
		return rested, err
	}
	defer func() { err = errors.Join(err, process.Cancel(), process.Wait()) }()
	c, err := dialDev(out)
	if err != nil {
		return rested, err
	}
	defer c.Close()
	if err := allConverged(ctx, c, a, a.version); err != nil {
		return rested, err
	}
	if err := pause(ctx, 4*tail); err != nil { // it looks ever less often
		return rested, err
	}
	begin, err := readProcess(process.Process.Pid)
	if err != nil {
		return rested, err
	}
	if err := pause(ctx, b.rest); err != nil {
		return rested, err
	}
	end, err := readProcess(process.Process.Pid)
	return usage{CPU: end.CPU - begin.CPU, Memory: end.Memory}, err
}

// freePorts are two that nobody listens at now.
func freePorts(ctx context.Context) (ports [2]string, err error) {
	for i := range ports {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return ports, err
		}
		defer l.Close()
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
	}
	return ports, nil
}

// dialDev connects to the server whose address converge dev prints, and has the rest of what it prints read.
func dialDev(out io.Reader) (client.Client, error) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) > 1 && words[0] == "Temporal" {
			go func() { _, _ = io.Copy(io.Discard, out) }() // it ends with the process
			return client.Dial(client.Options{HostPort: words[1], Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
		}
	}
	return nil, errors.New("converge dev said no address")
}

func writeDev(dir string, a application) error {
	var services strings.Builder
	fmt.Fprintf(&services, "apiVersion: converge/v1\nkind: Application\nname: %s\nreleaseChannels: [{name: c1, runtimes: [{name: folder}]}]\n", a.name)
	for _, s := range a.services {
		fmt.Fprintf(&services, "---\napiVersion: converge/v1\nkind: Service\nname: %s\ninitialVersion: %s\ncustom: {}\n", s, a.version)
	}
	services.WriteString(`---
apiVersion: converge/v1
kind: Runtime
name: folder
custom:
  apply: {command: [./run, apply]}
  fetch: {command: [./run, fetch], mode: structured}
`)
	return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "dev.converge.yaml"), []byte(services.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "run"), []byte(devFolder), 0o700)) //nolint:gosec // it is run
}
