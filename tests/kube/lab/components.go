package lab

import (
	"fmt"
	"strings"
)

// controllers are those that declarations of applications meet. Not among them is what looks after nodes, clouds and
// volumes, which are played.
var controllers = strings.Join([]string{
	"clusterrole-aggregation-controller",
	"cronjob-controller",
	"daemonset-controller",
	"deployment-controller",
	"disruption-controller",
	"endpoints-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"horizontal-pod-autoscaler-controller",
	"job-controller",
	"namespace-controller",
	"persistentvolumeclaim-protection-controller",
	"replicaset-controller",
	"replicationcontroller-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"statefulset-controller",
	"ttl-after-finished-controller",
	"validatingadmissionpolicy-status-controller",
}, ",")

// startAPI starts etcd and the API server, which waits for etcd itself.
func (c *cluster) startAPI() error {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.ports.etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.ports.peer)
	err := c.run(Etcd,
		"--name="+c.name, "--data-dir="+c.path("etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster="+c.name+"="+peer,
		// The data need not outlive the machine.
		"--unsafe-no-fsync", "--log-level=warn")
	if err != nil {
		return err
	}
	return c.run(APIServer,
		"--etcd-servers="+client,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.api),
		"--endpoint-reconciler-type=none",
		"--cert-dir="+c.path("pki"), "--client-ca-file="+c.authorityFile(),
		"--tls-cert-file="+c.certFile(serverIdentity), "--tls-private-key-file="+c.keyFile(serverIdentity),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.keyFile(tokenIdentity), "--service-account-signing-key-file="+c.keyFile(tokenIdentity),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC", "--allow-privileged=true", "--profiling=false",
		"--kubelet-preferred-address-types=InternalIP",
		// It marks new nodes as not ready, and what would take the mark off does not run here.
		"--disable-admission-plugins=TaintNodesByCondition")
}

// startRest starts what would only retry before the API answers.
func (c *cluster) startRest(nodes int) error {
	if err := c.writeComponentKubeconfig(); err != nil {
		return err
	}
	err := c.run(Controllers,
		"--kubeconfig="+c.componentKubeconfig(), "--controllers="+controllers,
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--service-account-private-key-file="+c.keyFile(tokenIdentity), "--root-ca-file="+c.authorityFile(),
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--concurrent-namespace-syncs=20", "--horizontal-pod-autoscaler-sync-period=1s", "--resource-quota-sync-period=10s")
	if err != nil {
		return err
	}
	return c.run(Agent, "--kubeconfig="+c.componentKubeconfig(), "--dir="+c.path("pods"), fmt.Sprintf("--nodes=%d", nodes))
}
