package public

import "slices"

// Application is one that others publish, in two versions.
type Application struct {
	Name string
	// Sets are its files in the earlier and the later version.
	Sets [2]Set
}

// Applications are well-known ones as manifests, kustomizations and charts: those that are fetched with the other sets, and those that only
// the long form of the tests needs.
func Applications() (short, long []Application) {
	short = []Application{
		of("contour", "github.com/projectcontour/contour", "examples/render/contour.yaml",
			"v1.33.7", "h1:K+l/PjNLzkHGTZlwWo8iQQubO+hTMURHl9ylIqn0gpQ=", "v1.33.8", "h1:QoOfwqWws+CVRFpsRC2+f1DmB5IdurtyUtepIsiWfE0="),
		of("external-dns", "sigs.k8s.io/external-dns", "kustomize",
			"v0.20.0", "h1:rJ4Q5c32NStvI8J+u2nyM4bcKxZG4g1NLPL0p994U9M=", "v0.22.0", "h1:+ASJ3KF7DLqHo2LsG8Qinuh2J389MS86I19i/r8ewUc="),
	}
	long = []Application{
		of("argo-cd-install", "github.com/argoproj/argo-cd/v3", "manifests/install.yaml",
			"v3.3.6", "h1:eaWeTkM5EdDHSD3seySuxmbBY38UHjZfRJUPRBccGcY=", "v3.4.12", "h1:kRvr4+C5cG65+MVaNjlefGWN+4Af3JZrfpDvu0o7SZQ="),
		of("argo-rollouts-install", "github.com/argoproj/argo-rollouts", "manifests/install.yaml",
			"v1.9.0", "h1:bXgBpwCByXyAUcgBnyP0fxkSW2CEot78InTFjFlag5g=", "v1.10.1", "h1:6oyVPGiHHxu3ixkT6mngemh88HLPDoTX1IwO6KNR1Y4="),
		{Name: "cert-manager", Sets: ChartWithHooks()},
		of("cilium", "github.com/cilium/cilium", "install/kubernetes/cilium",
			"v1.15.6", "h1:YT6UYuvdua6N1KQ6mRprymCct6Ee7uCE1hckbAR2bRM=", "v1.15.19", "h1:paLLN6chvDJiW9FB31c2KHdtFbkFB6QsVxgvLHN9XHs="),
		of("gateway-api", "sigs.k8s.io/gateway-api", "config/crd",
			"v1.5.1", "h1:RqVRIlkhLhUO8wOHKTLnTJA6o/1un4po4/6M1nRzdd0=", "v1.6.3", "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc="),
		of("keda", "github.com/kedacore/keda/v2", "config",
			"v2.20.2", "h1:SR60v8uIcelbveS8n/1jcl8tLdBBIbHMxmdOHw8tKqA=", "v2.21.0", "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps="),
		of("kro", "github.com/kubernetes-sigs/kro", "helm",
			"v0.9.3", "h1:jwKOvYh56xqUUEgmS8w7WwdMK4YDwMeZyCKiMjgI3FQ=", "v0.9.4", "h1:gynhldCLYW5x+M0c2Bf1ihoQTpNE68SKiXl1f6aX1kk="),
		of("kuberay", "github.com/ray-project/kuberay/ray-operator", "config",
			"v1.4.0", "h1:QSVqJlPDHnpC/hi3nBbxioxfPEiL3WbmM9hnv6xy2Vk=", "v1.5.0", "h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg="),
		of("kyverno", "github.com/kyverno/kyverno", "config/install-latest-testing.yaml",
			"v1.18.2", "h1:w/p1ysSEzOuMO4DaYmpiJ5YioL4OCkgmFFC5cJqiJ68=", "v1.19.1", "h1:/MkgFii3/VlQfKR1JpC9tVwNNVNQTt2S4U6qCsafsTU="),
		of("metallb", "go.universe.tf/metallb", "config/manifests/metallb-native.yaml",
			"v0.15.2", "h1:r7KDgJtk3KZe3qb36zRVrVCYHxLR03nPGT+qFXOomJM=", "v0.16.2", "h1:RCSAGoZmqcvTg0e56+Okbwz8iTuQVX30JpKX5mYEPUM="),
		of("metrics-server-overlays", "sigs.k8s.io/metrics-server", "manifests",
			"v0.8.0", "h1:Zlsi3sBWEtFKCD3+xSysThvXyLQ363rUAlqpnsY5JwI=", "v0.9.0", "h1:nlqqZ2H0Xfko8eJC/1qaNVVT17hu4rxndkOi22KTZ4w="),
		of("prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "bundle.yaml",
			"v0.84.0", "h1:XXm7lKizTnnxeSwI01wjNAapKzw/4XAPdpcZqjRKgRU=", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="),
		of("sealed-secrets", "github.com/bitnami-labs/sealed-secrets", "helm/sealed-secrets",
			"v0.27.1", "h1:oSq/rCGYz0pk7RP4RacIorG/VCWA6c4D8wIEpRkZAUg=", "v0.40.0", "h1:rvCP35JL8ZV5LNA2SrwNR6iLyoM3ulrSFWN0lBtYEYI="),
		of("snapshot-controller", "github.com/kubernetes-csi/external-snapshotter/v8", "deploy/kubernetes/snapshot-controller",
			"v8.6.0", "h1:PY0WimDZEra5nlQfg9XliMh0kXoZAaE92z4WSrTutdQ=", "v8.7.0", "h1:sYxyBXffG+pc2QfvFkP6uJqtYVFVRvkrxAHi8WjD5fU="),
		of("source-controller", "github.com/fluxcd/source-controller", "config",
			"v1.8.5", "h1:3zKSTGc2FPoZcQ5BjnyOrwdHDWeYqst3uAoZ+c0DG3c=", "v1.9.2", "h1:dPaSvA6Gd/YYsVCOALG8hq8ADA23fXK36yFzbj8tv/o="),
		of("vertical-pod-autoscaler", "k8s.io/autoscaler/vertical-pod-autoscaler", "deploy",
			"v1.7.3", "h1:MGd2lqWWrnT0nUurQ2g5t6lDf6hG7yJai5ZGadqEoRU=", "v1.8.1", "h1:Pe8bV1wozN4gOKO1rleiIY5alIyAXN+DnXDbXQcL4fI="),
	}
	return short, long
}

func of(name, module, folder, earlier, earlierSum, later, laterSum string) Application {
	set := func(version, sum string) Set {
		return Set{Name: name, Module: module, Version: version, Sum: sum, Folder: folder}
	}
	return Application{Name: name, Sets: [2]Set{set(earlier, earlierSum), set(later, laterSum)}}
}

// SetsOf are the sets of applications.
func SetsOf(applications []Application) (all []Set) {
	for _, a := range applications {
		all = append(all, a.Sets[:]...)
	}
	return slices.Clip(all)
}
