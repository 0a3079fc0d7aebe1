package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes"
	"github.com/converge-engine/converge/tests/bench/requests"
)

// plane is a world with a Kubernetes control plane, on which the worker's real runtime works.
type plane struct {
	*world
	lab   *lab
	admin clientset.Interface // for those who change things by hand
	lines map[string]*line    // by runtime
}

// line is how one runtime reaches the cluster.
type line struct {
	clusters *kubernetes.Clusters
	requests *requests.Counter
	blind    bool // it does not watch
}

func newLine(blind bool) *line {
	counter := &requests.Counter{}
	return &line{clusters: &kubernetes.Clusters{WrapTransport: counter.Wrap}, requests: counter, blind: blind}
}

// blind is a runtime without its optional powers.
type blind struct{ runtimes.Runtime }

// newPlane starts a control plane, and a world whose applications have the runtimes of these lines.
func newPlane(ctx context.Context, b *bench, dir string, lines map[string]*line) (_ *plane, err error) {
	program, err := labProgram(ctx, b.kubelab)
	if err != nil {
		return nil, err
	}
	p := &plane{lines: lines}
	if p.lab, err = startLab(ctx, program, filepath.Join(dir, "kube")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.lab.stop())
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", p.lab.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if p.admin, err = clientset.NewForConfig(config); err != nil {
		return nil, err
	}
	p.world, err = newWorldWith(ctx, dir, map[entities.RuntimeKind]activities.Factory{entities.RuntimeKubernetes: p.runtime})
	return p, err
}

func (p *plane) runtime(d entities.RuntimeDefinition) (runtimes.Runtime, error) {
	l, ok := p.lines[d.Name]
	if !ok {
		return nil, fmt.Errorf("no line for runtime %s", d.Name)
	}
	made, err := kubernetes.New(d, l.clusters)
	if err != nil || !l.blind {
		return made, err
	}
	return blind{made}, nil
}

// close stops everything, the control plane last.
func (p *plane) close() error {
	err := p.world.close()
	for _, l := range p.lines {
		l.clusters.Close()
	}
	return errors.Join(err, p.lab.stop())
}

// at is a new namespace of that name.
func (p *plane) at(ctx context.Context, name string) (*namespace, error) {
	_, err := p.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return &namespace{kubeconfig: p.lab.kubeconfig, name: name}, err
}

// allConverged waits until every service of an application is CONVERGED at a version.
func allConverged(ctx context.Context, c client.Client, a application, version string) error {
	query := fmt.Sprintf("WorkflowType='%s' AND %s='%s' AND %s='CONVERGED' AND %s='%s'", protocol.ServiceWorkflow,
		protocol.AttrApplication, a.name, protocol.AttrStatus, protocol.AttrVersion, version)
	var found int64
	err := until(ctx, time.Second/4, func() (bool, error) {
		answer, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		found = answer.GetCount()
		return found >= int64(len(a.services)), err
	})
	if err != nil {
		return fmt.Errorf("%d of %d services converged at %s: %w", found, len(a.services), version, err)
	}
	return nil
}

// planeSpent is what all that takes part has used so far.
type planeSpent struct {
	spent
	parts map[string]usage // of the control plane
}

func (p *plane) spent() (planeSpent, error) {
	s, err := p.world.spent()
	if err != nil {
		return planeSpent{}, err
	}
	parts, err := p.lab.used()
	return planeSpent{s, parts}, err
}

// planeSince is the CPU of each component of the control plane, and of all of them.
func (s planeSpent) planeSince(before planeSpent) (each map[string]time.Duration, all time.Duration) {
	each = map[string]time.Duration{}
	for name, now := range s.parts {
		each[name] = now.CPU - before.parts[name].CPU
		all += each[name]
	}
	return each, all
}
