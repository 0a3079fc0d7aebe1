package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// This file says why a credential plugin fails. client-go passes what the plugin writes to stderr to the worker's stderr, and reports the exit
// code alone. So a plugin that failed runs once more, and what it writes becomes part of the error.

const (
	// pluginTimeout is how long the plugin may take to say why it fails.
	pluginTimeout = 10 * time.Second
	// pluginRepeat is how long its answer is used: during an outage the server is probed every few seconds.
	pluginRepeat = 30 * time.Second
	// maxPluginText is how much of its stderr is reported, in bytes: the end, where the cause is.
	maxPluginText = 600
)

// pluginError is the failure of a credential plugin, with what it wrote to stderr.
type pluginError struct {
	command, stderr string
	err             error
}

func (e *pluginError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("the credential plugin %s failed, and wrote nothing to stderr: %s", e.command, e.err)
	}
	return fmt.Sprintf("the credential plugin %s failed: %s", e.command, e.stderr)
}

func (e *pluginError) Unwrap() error { return e.err }

// plugin is the credential plugin of a connection; nil if it has none.
type plugin struct {
	config *clientcmdapi.ExecConfig
	server string

	mu      sync.Mutex
	stderr  string
	askedAt time.Time
}

func pluginOf(config *rest.Config) *plugin {
	if config.ExecProvider == nil {
		return nil
	}
	return &plugin{config: config.ExecProvider.DeepCopy(), server: config.Host}
}

// explain replaces the error of a request whose credentials the plugin did not deliver. client-go has no type for it.
func (p *plugin) explain(ctx context.Context, err error) error {
	if p == nil || err == nil || !strings.Contains(err.Error(), "getting credentials: ") {
		return err
	}
	return &pluginError{command: p.config.Command, stderr: p.ask(ctx), err: err}
}

// ask runs the plugin and returns the end of its stderr, on one line.
func (p *plugin) ask(ctx context.Context) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.askedAt) < pluginRepeat {
		return p.stderr
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pluginTimeout)
	defer cancel()
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, p.config.Command, p.config.Args...) //nolint:gosec // the worker's own kubeconfig names it
	command.Stderr, command.WaitDelay = &stderr, time.Second
	command.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+p.info())
	for _, each := range p.config.Env {
		command.Env = append(command.Env, each.Name+"="+each.Value)
	}
	err := command.Run()
	text := strings.Join(strings.Fields(stderr.String()), " ")
	if text == "" && err != nil {
		text = err.Error() // it cannot be executed, or took too long
	}
	p.stderr, p.askedAt = lastBytes(text, maxPluginText), time.Now()
	return p.stderr
}

// info is what a plugin learns of the cluster, without its certificate.
func (p *plugin) info() string {
	spec := map[string]any{"interactive": false}
	if p.config.ProvideClusterInfo {
		spec["cluster"] = map[string]any{"server": p.server}
	}
	text, _ := json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": p.config.APIVersion, "spec": spec}) // strings only
	return string(text)
}

// lastBytes is the end of a text, from the beginning of a word.
func lastBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	if _, rest, ok := strings.Cut(text, " "); ok {
		text = rest
	}
	return "… " + text
}

// isTokenFailure reports whether a request was not sent because the worker cannot sign a token for EKS.
func isTokenFailure(err error) bool {
	var failed *eksTokenError
	return errors.As(err, &failed)
}

// isPluginFailure reports whether a request was not sent because the credential plugin failed.
func isPluginFailure(err error) bool {
	var failed *pluginError
	return errors.As(err, &failed)
}
