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
		of("cilium", "github.com/cilium/cilium", "install/kubernetes/cilium",
			"v1.15.6", "h1:YT6UYuvdua6N1KQ6mRprymCct6Ee7uCE1hckbAR2bRM=", "v1.15.19", "h1:paLLN6chvDJiW9FB31c2KHdtFbkFB6QsVxgvLHN9XHs="),
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
