package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/entities"
)

// source says where a connection is described. Clusters are shared by it.
type source struct {
	kubeconfig string // absolute; empty: what client-go finds by itself
	context    string // empty: the current one
}

func sourceOf(def entities.RuntimeDefinition) source {
	from := source{}
	if def.Kubernetes == nil {
		return from
	}
	from.context = def.Kubernetes.Context
	if path := def.Kubernetes.Kubeconfig; path != "" {
		if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(path, "~/") {
			path = filepath.Join(home, path[2:])
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(def.Dir, path)
		}
		from.kubeconfig = filepath.Clean(path)
	}
	return from
}

// connection is how a cluster is reached, and what tells whether that changed.
type connection struct {
	config *rest.Config
	print  string // equal for equal connections
}

// load reads the kubeconfig. Where no file was named and none is found, the service account of the
// pod is used.
func (s source) load() (connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	rules.WarnIfAllMissing = false
	file, err := rules.Load()
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %w", s.where(rules), err)
	}
	if s.kubeconfig == "" && clientcmdapi.IsConfigEmpty(file) {
		return s.inCluster(rules)
	}
	if err := s.check(file, rules); err != nil {
		return connection{}, err
	}
	chosen := clientcmd.NewNonInteractiveClientConfig(*file, s.context, &clientcmd.ConfigOverrides{}, rules)
	config, err := chosen.ClientConfig()
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %s: %w", s.where(rules), s.named(file), err)
	}
	print, err := clientcmd.Write(*file)
	if err != nil {
		return connection{}, fmt.Errorf("kubeconfig %s: %w", s.where(rules), err)
	}
	return connection{config: config, print: string(print)}, nil
}

func (s source) inCluster(rules *clientcmd.ClientConfigLoadingRules) (connection, error) {
	if s.context != "" {
		return connection{}, fmt.Errorf("context %q: no kubeconfig was found at %s", s.context, s.where(rules))
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return connection{}, fmt.Errorf("no cluster is named: no kubeconfig was found at %s, and the worker runs in no pod of a cluster", s.where(rules))
	}
	if err != nil {
		return connection{}, fmt.Errorf("service account of the pod: %w", err)
	}
	return connection{config: config, print: config.Host}, nil // its token is read again by itself
}

// check names the contexts there are when the one asked for is not among them.
func (s source) check(file *clientcmdapi.Config, rules *clientcmd.ClientConfigLoadingRules) error {
	name := s.context
	if name == "" {
		name = file.CurrentContext
	}
	if _, ok := file.Contexts[name]; ok {
		return nil
	}
	known := make([]string, 0, len(file.Contexts))
	for context := range file.Contexts {
		known = append(known, context)
	}
	slices.Sort(known)
	there := "it has none"
	if len(known) > 0 {
		there = "expected one of " + strings.Join(known, ", ")
	}
	if name == "" {
		return fmt.Errorf("kubeconfig %s: it has no current context, and the runtime names none; %s", s.where(rules), there)
	}
	return fmt.Errorf("kubeconfig %s: no context %q; %s", s.where(rules), name, there)
}

func (s source) named(file *clientcmdapi.Config) string {
	if s.context != "" {
		return fmt.Sprintf("context %q", s.context)
	}
	return fmt.Sprintf("current context %q", file.CurrentContext)
}

func (s source) where(rules *clientcmd.ClientConfigLoadingRules) string {
	if s.kubeconfig != "" {
		return s.kubeconfig
	}
	return strings.Join(rules.GetLoadingPrecedence(), string(filepath.ListSeparator))
}

// userAgent is how requests name themselves in the server's audit log.
func userAgent() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = strings.Trim(info.Main.Version, "()")
	}
	return "converge/" + version
}
