// Single calls and batches of Pinocchio's algorithms and of generated code, in one program, compiled with the same flags.
// generated_dynamics ARM.txt CODE.so: benchmarks/generated_dynamics.py writes both and compiles this.
#include <pinocchio/multibody.hpp>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/regressor.hpp>
#include <pinocchio/algorithm/rnea.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using Call = void (*)(long, const double *, const double *, const double *, const double *, double *);
using Clock = std::chrono::steady_clock;
constexpr int STATES = 200, ROUNDS = 301;

template <typename F> double nanoseconds(F f)
{
    std::vector<double> times;
    for (int round = 0; round < ROUNDS; ++round) {
        const auto start = Clock::now();
        f();
        times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / STATES);
    }
    std::nth_element(times.begin(), times.begin() + ROUNDS / 2, times.end());
    return times[ROUNDS / 2];
}

int main(int, char **argv)
{
    std::ifstream arm(argv[1]);
    void *code = dlopen(argv[2], RTLD_NOW);
    if (!arm || !code) return 2;
    const auto numbers = [&arm](int count) {
        std::vector<double> out(count);
        for (double &x : out) arm >> x;
        return out;
    };
    const int N = int(numbers(1)[0]), base = int(numbers(1)[0]);
    const auto gravity = numbers(3), b = numbers(base);
    pinocchio::Model model;
    model.gravity.linear() = Eigen::Vector3d(gravity[0], gravity[1], gravity[2]);
    pinocchio::JointIndex parent = 0;
    for (int j = 0; j < N; ++j) {
        const bool slides = numbers(1)[0] != 0.0;
        const auto pose = numbers(16), link = numbers(10);
        const Eigen::Map<const Eigen::Matrix<double, 4, 4, Eigen::RowMajor>> at(pose.data());
        const pinocchio::SE3 place(at.topLeftCorner<3, 3>(), at.topRightCorner<3, 1>());
        const auto name = "joint" + std::to_string(j);
        parent = slides ? model.addJoint(parent, pinocchio::JointModelPZ(), place, name)
                        : model.addJoint(parent, pinocchio::JointModelRZ(), place, name);
        const Eigen::Map<const Eigen::Matrix<double, 10, 1>> body(link.data());
        model.appendBodyToJoint(parent, pinocchio::Inertia::FromDynamicParameters(body), pinocchio::SE3::Identity());
    }
    pinocchio::Data data(model);
    std::vector<Eigen::VectorXd> q(STATES), qd(STATES), qdd(STATES), tau(STATES);
    std::vector<double> flat[4], out(STATES * N * 10 * N), k(100000);
    for (int i = 0; i < STATES; ++i) {
        q[i] = Eigen::VectorXd::Random(N);
        qd[i] = Eigen::VectorXd::Random(N);
        qdd[i] = Eigen::VectorXd::Random(N);
        tau[i] = pinocchio::rnea(model, data, q[i], qd[i], qdd[i]);
        const Eigen::VectorXd *of[4] = {&q[i], &qd[i], &qdd[i], &tau[i]};
        for (int f = 0; f < 4; ++f)
            flat[f].insert(flat[f].end(), of[f]->data(), of[f]->data() + N);
    }
    double sum = 0.0;
    const double rnea = nanoseconds([&] {
        for (int i = 0; i < STATES; ++i) sum += pinocchio::rnea(model, data, q[i], qd[i], qdd[i])[0];
    });
    const double aba = nanoseconds([&] {
        for (int i = 0; i < STATES; ++i) sum += pinocchio::aba(model, data, q[i], qd[i], tau[i])[0];
    });
    const double regressor = nanoseconds([&] {
        for (int i = 0; i < STATES; ++i)
            sum += pinocchio::computeJointTorqueRegressor(model, data, q[i], qd[i], qdd[i])(0, 0);
    });
    std::printf("{\"pinocchio\": {\"inverse\": %g, \"forward\": %g, \"regressor\": %g}, \"ours\": {", rnea, aba, regressor);
    const double *x[3] = {flat[0].data(), flat[1].data(), flat[2].data()};
    reinterpret_cast<void (*)(const double *, double *)>(dlsym(code, "arm_prepare"))(b.data(), k.data());
    std::string name, separator;
    while (arm >> name) {
        const bool forward = name.rfind("forward", 0) == 0, torque = name.rfind("inverse", 0) == 0;
        const double *last = forward ? flat[3].data() : x[2];
        const Call call = reinterpret_cast<Call>(dlsym(code, ("arm_" + name).c_str()));
        const double single = nanoseconds([&] {
            for (int i = 0; i < STATES; ++i) {
                call(1, k.data(), x[0] + N * i, x[1] + N * i, last + N * i, out.data());
                sum += out[0];
            }
        });
        const double batch = nanoseconds([&] { call(STATES, k.data(), x[0], x[1], last, out.data()); sum += out[0]; });
        double worst = 0.0, scale = 1e-300;
        const auto &truth = forward ? flat[2] : flat[3];
        for (int i = 0; (forward || torque) && i < STATES * N; ++i) {
            worst = std::max(worst, std::abs(out[i] - truth[i]));
            scale = std::max(scale, std::abs(truth[i]));
        }
        std::printf("%s\"%s\": [%g, %g, %g]", separator.c_str(), name.c_str(), single, batch, worst / scale);
        separator = ", ";
    }
    std::printf("}, \"sum\": %g}\n", sum);
}
