package job_test

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func cluster(t *testing.T) (*rest.Config, string) {
	path := os.Getenv("CONVERGE_TEST_KUBECONFIG")
	if path == "" {
		t.Skip("no control plane")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	config.QPS = -1
	client, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	ns := "job-" + strings.ToLower(rand.Text()[:8])
	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return config, ns
}
