package activities

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
)

// Roots are the directories of applications on this worker, in which their commands start: by application, and "" for all others. The
// default is the directory that the application was published from.
type Roots map[string]string

// publishedTTL is how long the directory that an application was published from is cached.
const publishedTTL = 10 * time.Second

// publishedFrom returns the directory that an application was published from; empty: unknown.
func (a *Activities) publishedFrom(ctx context.Context, application string) (string, error) {
	dir, err := a.publishedDirs.get(application, publishedTTL, func() (string, error) { return a.Store.Directory(ctx, application) })
	if store.IsNotFound(err) {
		err = nil
	}
	return dir, err
}

// dir returns the path on this worker of an application's directory in a definition. The directory must exist; otherwise a command in it
// would fail with a misleading error.
func (a *Activities) dir(ctx context.Context, application, relative string) (string, error) {
	if relative == "" {
		return "", nil
	}
	local := filepath.FromSlash(relative)
	if !filepath.IsLocal(local) {
		return "", fmt.Errorf("directory %s is outside the application's directory", relative)
	}
	root := cmp.Or(a.Roots[application], a.Roots[""])
	if root == "" {
		var err error
		if root, err = a.publishedFrom(ctx, application); err != nil {
			return "", fmt.Errorf("directory of application %s: %w", application, err)
		}
	}
	dir := filepath.Join(root, local)
	if info, err := os.Stat(dir); root == "" || err != nil || !info.IsDir() {
		return "", fmt.Errorf("this worker does not have the directory %s of application %s; set it with: converge worker --root %s=DIR",
			cmp.Or(dir, relative), application, application)
	}
	return dir, nil
}

// needsDir reports whether a runtime's definition refers to its directory.
func needsDir(d entities.RuntimeDefinition) bool {
	switch {
	case d.Custom != nil && d.Custom.Job != nil:
		return relativePath(d.Custom.Job.Cluster.Kubeconfig)
	case d.Custom != nil && d.Custom.Task != nil:
		return false
	case d.Kubernetes != nil:
		return relativePath(d.Kubernetes.Kubeconfig)
	}
	return d.Custom != nil
}

func relativePath(name string) bool { return name != "" && !filepath.IsAbs(name) }

// needsDirFor is needsDir for a check or an extension.
func needsDirFor(job *entities.CommandJob, task *entities.CommandTask) bool {
	return needsDir(entities.RuntimeDefinition{Custom: &entities.CustomRuntime{Job: job, Task: task}})
}

// withLocalDir returns a runtime's definition with the path of its directory on this worker.
func (a *Activities) withLocalDir(ctx context.Context, d entities.RuntimeDefinition) (entities.RuntimeDefinition, error) {
	dir, err := a.dirIfNeeded(ctx, needsDir(d), d.Owner, d.Dir)
	d.Dir = dir
	return d, err
}

// dirIfNeeded is dir if needed; otherwise it returns "".
func (a *Activities) dirIfNeeded(ctx context.Context, needed bool, application, relative string) (string, error) {
	if !needed {
		return "", nil
	}
	return a.dir(ctx, application, relative)
}
