"""Proximal policy optimisation: advantages over a rollout, and clipped updates of the policy."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, obs_dim=4, n_actions=3, hidden=16):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(obs_dim, hidden)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(obs_dim, hidden)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden, n_actions), std=0.01),
        )

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        logits = self.actor(x)
        probs = Categorical(logits=logits)
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def compute_gae(rewards, values, dones, next_value, gamma=0.99, lam=0.95):
    advantages = []
    last = torch.zeros_like(next_value)
    for t in reversed(range(rewards.shape[0])):
        after = next_value if t == rewards.shape[0] - 1 else values[t + 1]
        alive = 1.0 - dones[t]
        delta = rewards[t] + gamma * after * alive - values[t]
        last = delta + gamma * lam * alive * last
        advantages.insert(0, last)
    advantages = torch.stack(advantages)
    return advantages, advantages + values


def build():
    return Agent()


def batch(rng):
    obs = rng.standard_normal((6, 2, 4)).astype("float32")
    actions = rng.integers(0, 3, (6, 2))
    rewards = rng.standard_normal((6, 2)).astype("float32")
    dones = (rng.random((6, 2)) < 0.2).astype("float32")
    return obs, actions, rewards, dones


def predict(model, obs, actions, rewards, dones):
    _, logprob, entropy, value = model.get_action_and_value(obs, actions)
    return logprob, entropy, value


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=2.5e-3, eps=1e-5)


def train_step(model, optimizer, obs, actions, rewards, dones, clip=0.2, vf=0.5, ent=0.01):
    with torch.no_grad():
        _, old_logprob, _, values = model.get_action_and_value(obs, actions)
        values = values.squeeze(-1)
        advantages, returns = compute_gae(rewards, values, dones, values[-1])
    b_obs = obs.reshape(-1, obs.shape[-1])
    b_actions, b_logprobs = actions.reshape(-1), old_logprob.reshape(-1)
    b_adv, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
    clipfracs = []
    for epoch in range(2):
        _, newlogprob, entropy, newvalue = model.get_action_and_value(b_obs, b_actions)
        newvalue = newvalue.view(-1)
        logratio = newlogprob - b_logprobs
        ratio = logratio.exp()
        with torch.no_grad():
            clipfracs += [((ratio - 1.0).abs() > clip).float().mean().item()]
        mb_adv = (b_adv - b_adv.mean()) / (b_adv.std() + 1e-8)
        pg_loss1 = -mb_adv * ratio
        pg_loss2 = -mb_adv * torch.clamp(ratio, 1 - clip, 1 + clip)
        pg_loss = torch.max(pg_loss1, pg_loss2).mean()
        v_clipped = b_values + torch.clamp(newvalue - b_values, -clip, clip)
        v_loss = 0.5 * torch.max((newvalue - b_returns) ** 2, (v_clipped - b_returns) ** 2).mean()
        loss = pg_loss - ent * entropy.mean() + v_loss * vf
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return loss.item()


def after(model, obs, actions, rewards, dones):
    action, logprob, _, _ = model.get_action_and_value(obs)
    assert action.shape == actions.shape and bool(((action >= 0) & (action < 3)).all())
    return model.get_value(obs)
