package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"
)

// marker is a file in a cluster's folder that says that a lab made it and may remove it.
const marker = ".kubelab"

// agentGrace is what the agent has to end the processes it runs.
const agentGrace = 3 * time.Second

// cluster is an API server with what belongs to it.
type cluster struct {
	name, dir string
	ports     ports
	ca        *authority
	children  []*child // in the order of their start
	exited    chan<- *child
}

type ports struct{ etcd, peer, api int }

func newCluster(name, dir string, exited chan<- *child) (*cluster, error) {
	if !clusterName.MatchString(name) {
		return nil, errors.New("want a name of lower case letters, digits and dashes")
	}
	if err := emptyFolder(dir); err != nil {
		return nil, err
	}
	free, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority(name)
	if err != nil {
		return nil, err
	}
	c := &cluster{name: name, dir: dir, ca: ca, exited: exited, ports: ports{etcd: free[0], peer: free[1], api: free[2]}}
	return c, c.writeIdentities()
}

// emptyFolder makes dir anew, unless it holds something else than a lab's state.
func emptyFolder(dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
			return fmt.Errorf("%s is not empty and was not made by kubelab", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, sub := range []string{"etcd", "pki", "logs", "pods"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, marker), nil, 0o600)
}

// The ports of labs: below those that the system gives to outgoing connections (32768 and above on Linux), one of which could have the port of an API
// server that is stopped for a while.
const lowPort, highPort = 31000, 32768

// freePorts finds ports that nothing listens on now. They are held together, so that none is found twice.
func freePorts(n int) ([]int, error) {
	var found []int
	for range highPort - lowPort {
		port := lowPort + rand.IntN(highPort-lowPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // something has it
		}
		defer listener.Close()
		if found = append(found, port); len(found) == n {
			return found, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports from %d to %d", n, lowPort, highPort)
}

func (c *cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *cluster) server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.ports.api) }

func (c *cluster) logFile(component string) string { return c.path("logs", component+".log") }

// child is the latest process of a component; nil when there is none.
func (c *cluster) child(name string) *child {
	for _, child := range c.children {
		if child.name == name {
			return child
		}
	}
	return nil
}

// run starts a component, in the place of one of the same name that has been stopped.
func (c *cluster) run(name string, args ...string) error {
	before := c.child(name)
	if before != nil {
		before.kill()
	}
	started, err := startChild(name, args, c.logFile(name), c.exited)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if before == nil {
		c.children = append(c.children, started)
		return nil
	}
	for i := range c.children {
		if c.children[i] == before {
			c.children[i] = started
		}
	}
	return nil
}

func (c *cluster) stop() {
	for i := len(c.children) - 1; i >= 0; i-- {
		if c.children[i].name == Agent {
			c.children[i].end(agentGrace)
			continue
		}
		c.children[i].kill()
	}
}
