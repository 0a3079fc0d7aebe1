// Package api is a client for the few kinds that Converge names itself: Jobs and their pods, logs, events, Secrets, ConfigMaps,
// namespaces, nodes, and access reviews. Objects of instances, of any kind, go through client-go's dynamic client.
//
// client-go's own clientset has all kinds. It takes 24 processor-seconds to compile and would be a fifth of the program. This
// package uses the same building blocks. It may import only the libraries of Kubernetes.
package api

import (
	"context"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// Client speaks to one API server. It is safe for concurrent use.
type Client struct {
	// Core and Batch are the connections to these API groups, for watches.
	Core, Batch   rest.Interface
	authorization rest.Interface
	parameters    runtime.ParameterCodec
}

// New makes a client from a configuration. Requests go through httpClient; nil: through a client that the configuration describes.
func New(config *rest.Config, httpClient *http.Client) (c *Client, err error) {
	if httpClient == nil {
		if httpClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, err
		}
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, authorizationv1.AddToScheme} {
		utilruntime.Must(add(scheme)) // it registers types that are compiled in
	}
	codecs := rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion()
	group := func(version schema.GroupVersion, path string) (rest.Interface, error) {
		own := *config
		own.GroupVersion, own.APIPath, own.NegotiatedSerializer = &version, path, codecs
		if own.UserAgent == "" {
			own.UserAgent = rest.DefaultKubernetesUserAgent()
		}
		return rest.RESTClientForConfigAndClient(&own, httpClient)
	}
	c = &Client{parameters: runtime.NewParameterCodec(scheme)}
	if c.Core, err = group(corev1.SchemeGroupVersion, "/api"); err != nil {
		return nil, err
	}
	if c.Batch, err = group(batchv1.SchemeGroupVersion, "/apis"); err != nil {
		return nil, err
	}
	c.authorization, err = group(authorizationv1.SchemeGroupVersion, "/apis")
	return c, err
}

// Jobs of a namespace.
func (c *Client) Jobs(namespace string) *gentype.ClientWithList[*batchv1.Job, *batchv1.JobList] {
	return gentype.NewClientWithList("jobs", c.Batch, c.parameters, namespace,
		func() *batchv1.Job { return &batchv1.Job{} }, func() *batchv1.JobList { return &batchv1.JobList{} })
}

// Secrets of a namespace.
func (c *Client) Secrets(namespace string) *gentype.Client[*corev1.Secret] {
	return gentype.NewClient("secrets", c.Core, c.parameters, namespace, func() *corev1.Secret { return &corev1.Secret{} })
}

// ConfigMaps of a namespace.
func (c *Client) ConfigMaps(namespace string) *gentype.Client[*corev1.ConfigMap] {
	return gentype.NewClient("configmaps", c.Core, c.parameters, namespace, func() *corev1.ConfigMap { return &corev1.ConfigMap{} })
}

// Events of a namespace.
func (c *Client) Events(namespace string) *gentype.ClientWithList[*corev1.Event, *corev1.EventList] {
	return gentype.NewClientWithList("events", c.Core, c.parameters, namespace,
		func() *corev1.Event { return &corev1.Event{} }, func() *corev1.EventList { return &corev1.EventList{} })
}

// Namespaces of the cluster.
func (c *Client) Namespaces() *gentype.Client[*corev1.Namespace] {
	return gentype.NewClient("namespaces", c.Core, c.parameters, "", func() *corev1.Namespace { return &corev1.Namespace{} })
}

// Nodes of the cluster.
func (c *Client) Nodes() *gentype.Client[*corev1.Node] {
	return gentype.NewClient("nodes", c.Core, c.parameters, "", func() *corev1.Node { return &corev1.Node{} })
}

// Log is a request for the log of a pod's container.
func (c *Client) Log(namespace, pod string, o *corev1.PodLogOptions) *rest.Request {
	return c.Core.Get().Namespace(namespace).Name(pod).Resource("pods").SubResource("log").VersionedParams(o, c.parameters)
}

// Review asks the server whether this client may do something.
func (c *Client) Review(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview) (*authorizationv1.SelfSubjectAccessReview, error) {
	return gentype.NewClient("selfsubjectaccessreviews", c.authorization, c.parameters, "",
		func() *authorizationv1.SelfSubjectAccessReview { return &authorizationv1.SelfSubjectAccessReview{} }).
		Create(ctx, review, metav1.CreateOptions{})
}

// Get requests a path, such as "/apis/apps/v1", and returns the JSON of the answer.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.Core.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
}
