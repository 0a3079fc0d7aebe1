package kubetest

import "testing"

const apiServer = "kube-apiserver"

// StopAPIServer ends the API server of an Own cluster at once, as a crash would. What etcd holds stays. It waits until
// the controllers are at work: one that is still starting gives up when its server goes, and the whole lab with it.
func (c *Cluster) StopAPIServer(t testing.TB) {
	t.Helper()
	c.Namespace(t)
	c.tell(t, "stop")
}

// StartAPIServer starts it again, on the same port, and returns when it is ready.
func (c *Cluster) StartAPIServer(t testing.TB) { c.tell(t, "start") }

// PauseAPIServer makes it stand still: connections are accepted, and nothing answers.
func (c *Cluster) PauseAPIServer(t testing.TB) { c.tell(t, "pause") }

// ResumeAPIServer makes it go on.
func (c *Cluster) ResumeAPIServer(t testing.TB) { c.tell(t, "resume") }

func (c *Cluster) tell(t testing.TB, verb string) {
	t.Helper()
	if !c.own {
		t.Fatal("this cluster serves other tests as well: use Own, or a Gate")
	}
	if err := c.lab.tell(verb, c.Name, apiServer); err != nil {
		t.Fatal(err)
	}
}
